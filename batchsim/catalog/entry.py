"""What every entry of the catalogue has in common: frozen, no unknown keys, a name and a source."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Entry(BaseModel):
    """One entry of the catalogue; an inline mapping in a scenario takes the same keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)

    name: str = Field("inline", description="the catalogue's name, lower case with hyphens")
    aliases: tuple[str, ...] = Field((), description="other names that mean the same")
    source: str = Field("inline", description="where the figures are from")
