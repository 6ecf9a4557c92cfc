"""`run.plot`: the figures of one run, each a method that returns its Axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from batchsim.simulation import Run


class RunPlots:
    """Figures of a run; keyword arguments go on to the functions of `batchsim.report.plots`."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def latency_cdf(self, metric: str = "ttft", *, ax: Axes | None = None, **options: Any) -> Axes:
        """The share of requests within a latency: ttft, tpot, itl or e2e."""
        from batchsim.report import plots

        return plots.latency_cdf(self._run.records, metric, ax=ax, **options)

    def timeline(
        self, start_s: float | None = None, end_s: float | None = None, *, ax: Axes | None = None, **options: Any
    ) -> Axes:
        """Who ran when: waiting, prefill, decode, evicted."""
        from batchsim.report import plots

        return plots.timeline(self._run.records, start_s, end_s, ax=ax, **options)

    def kv_occupancy(self, replica: int = 0, *, ax: Axes | None = None) -> Axes:
        """KV blocks in use over time."""
        from batchsim.report import plots

        return plots.kv_occupancy(self._run.records, replica, ax=ax)

    def batch_size(self, *, ax: Axes | None = None, **options: Any) -> Axes:
        """Requests running and waiting over time."""
        from batchsim.report import plots

        return plots.batch_size(self._run.records, ax=ax, **options)

    def itl_spikes(self, *, ax: Axes | None = None, **options: Any) -> Axes:
        """The gaps between tokens over time."""
        from batchsim.report import plots

        return plots.itl_spikes(self._run.records, ax=ax, **options)

    def tenant_service(self, *, ax: Axes | None = None) -> Axes:
        """Tokens served to each tenant over time."""
        from batchsim.report import study_plots

        return study_plots.tenant_service(self._run.records, ax=ax)
