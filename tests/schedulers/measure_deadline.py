"""Prints goodput of `deadline` beside that of fcfs, by load: `python -m tests.schedulers.measure_deadline`.

Sixteen seeds, none of them among those of the tests. docs/schedulers/deadline.md quotes it.
"""

from __future__ import annotations

from statistics import fmean

from tests.schedulers.test_deadline import SLO, near_saturation

SEEDS = range(100, 116)
RATES = (8, 10, 11, 12)
BURSTINESS = (1.0, 0.3)
TIMEOUT = {"queue_timeout_ms": 450.0}
"""With it both turn away whoever has no seat after 450 ms, and can hardly have a first token by 500."""
POLICIES: tuple[dict[str, object], ...] = (
    {"kind": "vllm"},
    {"kind": "deadline", **SLO},
    {"kind": "priority", **TIMEOUT},  # all alike: first come, first served
    {"kind": "deadline", **SLO, **TIMEOUT},
)


def main() -> None:
    """A row a load: good requests/s of all, the ratio of the first two, and in how many seeds `deadline` has more."""
    print("| burstiness | req/s | fcfs | `deadline` | ratio (least to most) | seeds better, equal, worse "
          "| fcfs, timeout | `deadline`, timeout |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for burstiness in BURSTINESS:
        for rate in RATES:
            found = [
                [float(near_saturation(policy, seed, rate, burstiness).summary["request_goodput"]) for seed in SEEDS]
                for policy in POLICIES
            ]
            ratios = [slack / plain for plain, slack in zip(found[0], found[1], strict=True)]
            better, equal = sum(r > 1.001 for r in ratios), sum(abs(r - 1) <= 0.001 for r in ratios)
            print(
                f"| {burstiness:g} | {rate} | {fmean(found[0]):.2f} | {fmean(found[1]):.2f} | {fmean(ratios):.2f} "
                f"({min(ratios):.2f} to {max(ratios):.2f}) | {better}, {equal}, {len(ratios) - better - equal} "
                f"| {fmean(found[2]):.2f} | {fmean(found[3]):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
