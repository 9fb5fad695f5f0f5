"""The block of a pipeline file that says where the traces of its runs are kept."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from lakefeed.config.base import Model
from lakefeed.config.values import Count


class Runs(Model):
    """The traces of finished runs."""

    keep: Literal["local", "checkpoint", "no"] = "local"
    """In the user's own folder on this machine; or beside the checkpoint too, with one request at the end of a run; or
    nowhere."""
    most: Count = Field(50, description="So many of the newest runs of a feed are kept.")
    most_mb: Count = Field(50, description="So much space they take at most.")

    @field_validator("keep", mode="before")
    @classmethod
    def _no(cls, keep: Any) -> Any:
        return "no" if keep is False else keep  # YAML reads the word so.
