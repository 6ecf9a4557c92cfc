"""What several folders of tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of shared data that BATCHSIM_DATA names; without it the test is skipped."""
    folder = os.environ.get("BATCHSIM_DATA")
    if not folder:
        pytest.skip("BATCHSIM_DATA is not set: the shared measurements are not at hand")
    return Path(folder)
