"""The block ``runs`` of a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from lakefeed.config.base import ConfigProblem
from lakefeed.config.blocks import Block, PipelineBlocks
from lakefeed.config.values import Count


class Runs(Block):
    """The traces of runs, which lakefeed runs shows."""

    only_for_runs: ClassVar[bool] = False

    keep: Literal["local", "checkpoint", "no"] = "local"
    """local: in the user's folder on this machine. checkpoint: also beside the checkpoint, with one request at a run's
    end. no: nowhere."""
    most: Count = Field(50, description="Most traces of a feed on this machine; the driver deletes the oldest.")
    most_mb: Count = Field(50, description="Most space that these traces take, in MB.")

    @field_validator("keep", mode="before")
    @classmethod
    def _no(cls, keep: Any) -> Any:
        return "no" if keep is False else keep  # YAML reads the word no as False.

    def problems(self, config: PipelineBlocks) -> Iterator[ConfigProblem]:
        if self.keep == "checkpoint" and config.resumes_by_ledger:
            what = "keep: checkpoint stores traces beside the checkpoint, but this feed has no checkpoint"
            yield ConfigProblem(what, hint="write keep: local")


def runs_of_file(config: PipelineBlocks) -> Runs:
    """Return the block ``runs``, or its default values."""
    return config.block(Runs) or Runs()
