"""Writes batches with a user's own class.

Guarantee: depends on the class. Without ``last``, it is at-least-once: lakefeed writes a batch again if a crash follows
``write``. It is exactly-once if the class has ``last``, and ``write`` stores ``batch.ranges`` with the rows in one
transaction: lakefeed then skips a batch that is stored, and refuses a batch that does not start where that one ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from lakefeed.config.problem import Problem
from lakefeed.config.sinks import EVERY_MODE, PythonSinkConfig
from lakefeed.errors import ConfigError
from lakefeed.lazy import DataFrame, SparkSession
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.continuity import NoLedger, RangesLedger
from lakefeed.ledger.protocol import SinkState
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.messages.pages import page_command
from lakefeed.records.transform import load
from lakefeed.sinks.base import BatchedSink
from lakefeed.sinks.definition import SinkDefinition, StoredState
from lakefeed.sinks.spark_format import PlainWriter


@dataclass(frozen=True)
class PythonBatch:
    """A batch's id and offset ranges, which lakefeed passes to a user's class with the rows.

    Attributes:
        id: Spark's number of the batch.
        ranges: the batch's offset ranges as JSON; ``write`` stores them with the rows, and ``last`` returns them.
    """

    feed: str
    id: int
    ranges: str


class UserSink(Protocol):
    """The methods of a user's class; it may also have ``modes`` (default: append) and ``last() -> str | None``."""

    def write(self, rows: DataFrame, batch: PythonBatch) -> None:
        """Write the rows of one micro-batch.

        They are computed already, and may be read more than once. Called in the driver, once for a batch; an error
        stops the feed.
        """


class PythonDefinition(SinkDefinition[PythonSinkConfig]):
    def open(self, spark: SparkSession, claim: Claim) -> BatchedSink:
        own = self._user_sink()
        return BatchedSink(PythonWriter(own), claim, self._ledger(own), where=self._where)

    def state(self) -> SinkState:
        ledger = self._ledger(self._user_sink())
        return StoredState(keeps_ledger=ledger.keeps_offsets, position=ledger.position)

    def _ledger(self, own: Any) -> NoLedger:
        return RangesLedger(self._where, own.last) if hasattr(own, "last") else NoLedger(self._where)

    @property
    def _where(self) -> str:
        return f"python:{self.settings.path}"

    def check_settings(self) -> Iterator[Problem]:
        try:
            self._user_sink()
        except ConfigError as error:
            yield Problem.of(error, key=f"{self.context.place}.path")

    def _user_sink(self) -> Any:
        """Create an object of the user's class; raise a ConfigError if it does not fit the settings or output mode."""
        where, mode = f"sink.python: {self.settings.path}", self.context.output_mode
        kind = load(self.settings.path, where="sink.python", folder=self.context.folder)
        try:
            own = kind(**self.settings.options)
        except TypeError as error:
            what, hint = (
                f"the class does not accept the options: {error}",
                "name in sink.python.options only parameters of the class, and all that it requires",
            )
            raise ConfigError(what, where=where, hint=hint) from None
        if not callable(getattr(own, "write", None)):
            hint = f"{page_command('sinks')} has an example"
            raise ConfigError("the class has no write(rows, batch)", where=where, hint=hint)
        modes = tuple(getattr(own, "modes", ("append",)))
        if wrong := [name for name in modes if name not in EVERY_MODE]:
            hint = f"choose from: {', '.join(EVERY_MODE)}"
            raise ConfigError(f"the class has the unknown mode '{wrong[0]}'", where=where, hint=hint)
        if mode not in modes:
            what = f"transform.output_mode: {mode} does not fit the class, which accepts {' and '.join(modes)}"
            raise ConfigError(what, where=where, hint="change output_mode, or add it to the modes of the class")
        return own


class PythonWriter(PlainWriter):
    def __init__(self, own: Any) -> None:
        self._own = own

    def write(self, rows: DataFrame, commit: Commit, *, commit_id: str) -> None:
        self._own.write(rows, PythonBatch(commit.feed, commit.batch_id, commit.ranges.to_json()))
