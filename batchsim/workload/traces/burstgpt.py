"""BurstGPT traces: CSV by column name, the older layout and the newer one with sessions; the model is the class.

Rows with 0 response tokens are failed requests in the publisher's data, and are invalid here.
"""

from __future__ import annotations

from batchsim.workload.traces.cells import elapsed, seconds, tokens
from batchsim.workload.traces.formats import Column, Format

FORMAT = Format(
    name="burstgpt",
    summary="CSV: Timestamp (s), Request tokens, Response tokens; Model and Session ID where present",
    columns=(
        Column("Timestamp", "arrival_ns", seconds),
        Column("Request tokens", "prompt_tokens", tokens),
        Column("Response tokens", "output_tokens", tokens),
        Column("Elapsed time", "", elapsed, required=False),
    ),
    texts=(("session", "Session ID"), ("traffic_class", "Model")),
)
