"""The types that workload descriptions are made of, with their bounds, and the limits of what a workload may hold."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

FloatArray = NDArray[np.float64]

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000

MAX_TOKENS = 10**9
"""No prompt or answer is longer: a larger number is a mistake, and sums of a run stay exact in int64."""
MAX_REQUESTS = 20_000_000
"""No workload holds more requests: its columns stay below 2 GB."""
MAX_TIME_S = 9_000_000_000
"""No time stamp is later (the year 2255 as an epoch): nanoseconds stay exact in int64."""
MAX_PRIORITY = 2**31


class Description:
    """Base of the descriptions; it carries only pydantic's configuration: unknown keys are refused."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid")


Tokens = Annotated[int, Field(strict=True, ge=1, le=MAX_TOKENS)]
Count = Annotated[int, Field(strict=True, ge=1, le=MAX_REQUESTS)]
Flag = Annotated[bool, Field(strict=True)]
Name = Annotated[str, Field(strict=True, min_length=1)]
Identifier = Annotated[str, Field(strict=True, min_length=1)] | Annotated[int, Field(strict=True)]
Priority = Annotated[int, Field(strict=True, ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(strict=True, ge=0, le=MAX_TIME_S, allow_inf_nan=False)]
PositiveSeconds = Annotated[float, Field(strict=True, gt=0, le=MAX_TIME_S, allow_inf_nan=False)]
Milliseconds = Annotated[float, Field(strict=True, ge=0, le=1000 * MAX_TIME_S, allow_inf_nan=False)]
PositiveMilliseconds = Annotated[float, Field(strict=True, gt=0, le=1000 * MAX_TIME_S, allow_inf_nan=False)]
Rate = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=True)]
"""Above 0; infinite means all at once. NaN is refused, for it is not above 0."""
