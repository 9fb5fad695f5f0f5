"""A sink of the user's own, in Python.

Guarantee: as the class makes it. Without ``last`` at-least-once: a crash after ``write`` lets the batch come again.
With it, and a ``write`` that stores ``batch.ranges`` together with the rows in one transaction, exactly-once: a batch
that is there is not written again, and one that does not continue where the last one ended is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lakefeed.config.problem import Problem
from lakefeed.config.sinks import EVERY_MODE, PythonSinkConfig
from lakefeed.config.transform import OutputMode
from lakefeed.errors import ConfigError
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.continuity import check_commit
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import CommitCheck, SinkState
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRanges
from lakefeed.records.transform.steps import load
from lakefeed.sinks.base import StatelessSink, cannot_move
from lakefeed.sinks.definition import SinkDefinition, StoredState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Batch:
    """The batch as a sink gets it.

    Attributes:
        feed: the pipeline's name.
        id: Spark's number of the batch.
        ranges: which records it is made of, as JSON; to be stored with the rows, and given back by ``last``.
    """

    feed: str
    id: int
    ranges: str


class UserSink(Protocol):
    """What a class has to have; it may also have ``modes`` (default: append) and ``last() -> str | None``."""

    def write(self, rows: DataFrame, batch: Batch) -> None:
        """Writes the rows of one micro-batch. Called in the driver, once for each batch; what it raises stops the feed.

        Args:
            rows: the rows, computed already; may be read more than once.
            batch: which batch it is.
        """


class PythonDefinition(SinkDefinition[PythonSinkConfig]):
    """A class of the user's own."""

    def open(self, spark: SparkSession, claim: Claim) -> PythonSink:
        """Make an object of the class."""
        context = self.context
        return PythonSink(self.settings, claim, output_mode=context.output_mode, folder=context.folder)

    def state(self) -> SinkState:
        """Ask the class."""
        own = class_of(self.settings, output_mode=self.context.output_mode, folder=self.context.folder)
        return StoredState(keeps_ledger=keeps_ledger(own), read_position=lambda: last_position(own))

    def check_settings(self) -> Iterator[Problem]:
        """Load the class, and look whether it takes the options and the output mode."""
        try:
            class_of(self.settings, output_mode=self.context.output_mode, folder=self.context.folder)
        except ConfigError as error:
            yield Problem.of(error, key=f"{self.context.place}.path")


class PythonLedger:
    """The ledger of a user's class that has ``last``: the newest batch alone.

    Args:
        own: an object of the class.
        where: the sink, as errors name it.
    """

    def __init__(self, own: Any, *, where: str) -> None:
        self._own = own
        self._where = where

    def position(self) -> Position | None:
        """Return where the feed stands, as the class says."""
        return last_position(self._own)

    def commits(self) -> Iterator[Commit]:
        """Return nothing: the class does not keep its commits."""
        return iter(())

    def take_fence(self) -> None:
        """Do nothing: two drivers meet at the checkpoint."""

    def check(self, commit: Commit) -> CommitCheck:
        """Return whether a batch has to be written.

        Raises:
            CheckpointMismatch: it neither is the newest batch nor begins where that ended.
        """
        # Without a position any batch is new: the sink may be named beside a running feed.
        if (last := self.position()) is None:
            return CommitCheck.NEW
        return check_commit(commit, last, where=self._where)

    def record_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Refuse: only ``write`` changes what ``last`` returns.

        Raises:
            ConfigError: always.
        """
        raise cannot_move(self._where)


class PythonSink(StatelessSink):
    """Lands batches through a user's class.

    Args:
        sink: its block in the pipeline file.
        claim: the feed's checkpoint.
        output_mode: what a batch is.
        folder: where the pipeline file is.

    Raises:
        ConfigError: there is no such class, it does not take these options, has no ``write``, or does not take the
            output mode.
    """

    def __init__(
        self, sink: PythonSinkConfig, claim: Claim, *, output_mode: OutputMode, folder: Path | None = None
    ) -> None:
        super().__init__(claim)
        self._path = sink.path
        self._own = class_of(sink, output_mode=output_mode, folder=folder)
        self.keeps_ledger = keeps_ledger(self._own)
        self.ledger = PythonLedger(self._own, where=self.location()) if self.keeps_ledger else None

    def location(self) -> str:
        """What to call it."""
        return f"python:{self._path}"

    def position(self) -> Position | None:
        """Where the feed stands, if the class says."""
        return last_position(self._own)

    def has(self, commit: Commit) -> bool:
        """Whether the newest batch of the sink is this one.

        Raises:
            CheckpointMismatch: it does not continue where that ended.
        """
        return self.ledger is not None and self.ledger.check(commit) is CommitCheck.ALREADY_COMMITTED

    def write(self, rows: DataFrame, commit: Commit) -> None:
        """Hands the batch to the class."""
        self._own.write(rows, Batch(commit.feed, commit.batch_id, commit.ranges.to_json()))


def keeps_ledger(own: Any) -> bool:
    """Whether a user's class says which offsets it holds."""
    return hasattr(own, "last")


def last_position(own: Any) -> Position | None:
    """Where the feed stands as a user's class says; None if it has nothing, or does not say.

    Raises:
        ConfigError: ``last`` returns something else than ``batch.ranges``.
    """
    text = own.last() if keeps_ledger(own) else None
    return None if text is None else Position(OffsetRanges.from_json(text), snapshot_id=0)


def class_of(sink: PythonSinkConfig, *, output_mode: OutputMode, folder: Path | None) -> Any:
    """An object of the user's class.

    Raises:
        ConfigError: see ``PythonSink``.
    """
    where = "sink.python"
    kind = load(sink.path, where=where, folder=folder)
    try:
        own = kind(**sink.options)
    except TypeError as error:
        raise ConfigError(f"the class does not take these options: {error}", where=f"{where}: {sink.path}") from None
    if not callable(getattr(own, "write", None)):
        raise ConfigError(
            "the class has no write(rows, batch)", where=f"{where}: {sink.path}", hint="docs/sinks.md has an example"
        )
    modes = tuple(getattr(own, "modes", ("append",)))
    if wrong := [each for each in modes if each not in EVERY_MODE]:
        raise ConfigError(f"its modes name {wrong[0]}, which is none", where=f"{where}: {sink.path}")
    if output_mode not in modes:
        raise ConfigError(
            f"transform.output_mode: {output_mode} does not fit the class, which takes {' and '.join(modes)}",
            where=f"{where}: {sink.path}",
        )
    return own
