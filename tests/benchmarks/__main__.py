"""All benchmarks, one after the other: `python -m tests.benchmarks [NAME…]`. Out of the default suite; nothing else should run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(names: list[str]) -> int:
    """Run `bench_NAME.py` for each name, or all; the number of those that failed."""
    files = [HERE / f"bench_{name}.py" for name in names] or sorted(HERE.glob("bench_*.py"))
    failed = 0
    for file in files:
        print(f"\n== {file.name}", flush=True)
        failed += subprocess.run([sys.executable, str(file)], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
