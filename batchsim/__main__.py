"""`python -m batchsim` is the `batchsim` command."""

from __future__ import annotations

from batchsim.cli import main

if __name__ == "__main__":
    main()
