"""The form that prices an iteration from `Coefficients`, in whole femtoseconds; roofline and calibrated share it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from batchsim.catalog import Range
from batchsim.cost._physics import Coefficients
from batchsim.cost.model import FS_PER_S, Flags, Int64, Shape


class FormCost:
    """Prices iterations by the form of `batchsim.cost._physics`.

    Prices of a token count and of a decoding batch are kept once computed: an engine asks a hundred thousand times a
    run (tests/benchmarks/bench_cost.py). Windowed layers see min(context, window); only the batch's mean context is
    known, so that is where they stop growing. Below it growth is None (price step by step), beyond it exact.
    """

    __slots__ = (
        "_about", "_beside", "_coefficients", "_context_fs", "_context_mixed_fs", "_decode", "_dense", "_mixed_fs", "_past_fs",
        "_past_window_fs", "_range", "_s2_half_fs", "_seq_fs", "_step_fs", "_window", "_window_fs", "_window_mixed_fs",
    )  # fmt: skip

    def __init__(
        self, coefficients: Coefficients, about: dict[str, Any], calibrated: Range, step_fs: int = 0, seq_fs: int = 0
    ) -> None:
        """`about` is what `describe` answers, `calibrated` what `outside` compares with; the rest is host time."""
        c = coefficients
        self._coefficients, self._about, self._range = c, about, calibrated
        self._step_fs = step_fs
        self._seq_fs = _fs(c.seq_s) + seq_fs
        self._s2_half_fs = _fs(c.prefill_s / 2)
        self._past_fs = _fs(c.past_s)
        self._context_fs = _fs(c.context_s)
        self._context_mixed_fs = _fs(c.context_s * c.mixed_factor)
        self._mixed_fs = _fs(c.mixed_s)
        self._window = c.window
        self._window_fs = _fs(c.context_window_s)
        self._window_mixed_fs = _fs(c.context_window_s * c.mixed_factor)
        self._past_window_fs = _fs(c.past_window_s)
        self._dense: dict[int, int] = {}
        self._beside: dict[int, int] = {}
        self._decode: dict[int, tuple[int, int]] = {}

    def price(self, shape: Shape) -> tuple[int, int | None]:
        tokens, s2_x2, past, prefills, decodes, context = shape
        if self._window is not None:
            return self._price_windowed(shape)
        if not tokens:
            known = self._decode.get(decodes)
            if known is None:
                known = self._decode_terms(decodes)
            return known[0] + self._context_fs * context, known[1]
        dense = (self._beside if decodes else self._dense).get(tokens + decodes)
        if dense is None:
            dense = self._beside_fs(tokens + decodes) if decodes else self._dense_fs(tokens + decodes)
        each = self._context_mixed_fs
        first = dense + self._s2_half_fs * s2_x2 + self._seq_fs * (prefills + decodes) + each * context
        return first + self._past_fs * past if past else first, each * decodes

    def with_host(self, step_fs: int, seq_fs: int) -> FormCost:
        """The same plus the engine's host time."""
        seq_fs += self._seq_fs - _fs(self._coefficients.seq_s)
        return FormCost(self._coefficients, self._about, self._range, self._step_fs + step_fs, seq_fs)

    @property
    def coefficients(self) -> Coefficients:
        """What it prices with, seconds."""
        return self._coefficients

    def describe(self) -> dict[str, Any]:
        return dict(self._about)

    def outside(self, prefill_tokens: Int64, decode_seqs: Int64, context_tokens: Int64) -> Mapping[str, Flags]:
        """Iterations beyond the greatest value calibrated on; below the least, every term goes to its constant."""
        mean_context = context_tokens / np.maximum(decode_seqs, 1)
        columns = {"prefill_tokens": prefill_tokens, "decode_seqs": decode_seqs, "context_per_seq": mean_context}
        bounds = {name: getattr(self._range, name) for name in columns}
        return {name: np.asarray(columns[name] > bound[1]) for name, bound in bounds.items() if bound is not None}

    def _dense_fs(self, tokens: int) -> int:
        fs = self._dense[tokens] = _fs(self._coefficients.dense_s(tokens)) + self._step_fs
        return fs

    def _beside_fs(self, tokens: int) -> int:
        """Of a step that prefills and decodes."""
        fs = self._beside[tokens] = self._dense_fs(tokens) + self._mixed_fs
        return fs

    def _decode_terms(self, decodes: int) -> tuple[int, int]:
        """Of a pure decode step: all but its contexts, and its growth."""
        terms = (self._dense_fs(decodes) + self._seq_fs * decodes, self._context_fs * decodes)
        self._decode[decodes] = terms
        return terms

    def _price_windowed(self, shape: Shape) -> tuple[int, int | None]:
        tokens, s2_x2, past, prefills, decodes, context = shape
        window = self._window
        assert window is not None
        count = tokens + decodes
        dense = self._dense.get(count)
        first = self._dense_fs(count) if dense is None else dense
        first += self._seq_fs * (prefills + decodes)
        full_fs, windowed_fs = self._context_fs, self._window_fs
        if tokens:
            first += self._s2_half_fs * s2_x2 + self._past_fs * past
            first += _fs(self._coefficients.prefill_window_s * windowed_s2(tokens, s2_x2, window))
            first += self._past_window_fs * min(past, prefills * window)
            first += self._mixed_fs if decodes else 0
            full_fs, windowed_fs = self._context_mixed_fs, self._window_mixed_fs
        limit = decodes * window
        if context >= limit:
            return first + full_fs * context + windowed_fs * limit, full_fs * decodes
        return first + (full_fs + windowed_fs) * context, None


def windowed_s2(tokens: int, s2_x2: int, window: int) -> float:
    """S2 of a windowed layer: contexts spread evenly from 0 to twice their mean, each cut at the window.

    Exact for whole prompts of one length.
    """
    if s2_x2 <= window * tokens:
        return s2_x2 / 2
    return tokens * window * (1.0 - window * tokens / (2 * s2_x2))


def _fs(seconds: float) -> int:
    return round(seconds * FS_PER_S)
