"""The block of a pipeline file for the traces of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from lakefeed.config.base import ConfigProblem
from lakefeed.config.blocks import Block, PipelineBlocks
from lakefeed.config.values import Count


class Runs(Block):
    """Traces of runs, and where they are stored: see lakefeed runs."""

    only_for_runs: ClassVar[bool] = False

    keep: Literal["local", "checkpoint", "no"] = "local"
    """local: in the user's folder on this machine. checkpoint: also beside the checkpoint, with one request at a run's
    end. no: nowhere."""
    most: Count = Field(50, description="So many of the newest runs of a feed are kept.")
    most_mb: Count = Field(50, description="So much space they take at most.")

    @field_validator("keep", mode="before")
    @classmethod
    def _no(cls, keep: Any) -> Any:
        return "no" if keep is False else keep  # YAML parses no as False.

    def problems(self, config: PipelineBlocks) -> Iterator[ConfigProblem]:
        if self.keep == "checkpoint" and config.resumes_by_ledger:
            yield ConfigProblem(
                "keep: checkpoint keeps traces beside the checkpoint, and there is none", hint="keep: local"
            )


def runs_of_file(config: PipelineBlocks) -> Runs:
    """Return the block ``runs``, or its default values."""
    return config.block(Runs) or Runs()
