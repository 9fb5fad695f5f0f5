"""Opens the sinks of a feed: its own sink (``sink:``), and if there are any, the secondary sinks (``sinks:``).

With several sinks, a batch is read, decoded and transformed once, and then written to all sinks.

Guarantee: every sink keeps its own guarantee. A batch is written to the secondary sinks first, to the feed's own sink
last. So if the feed's own sink has a batch, all secondary sinks have it, too, except sinks that lag. After a crash in
between, Spark repeats the batch, and those sinks with a ledger that already have it skip it.

If a sink that may lag fails, the feed continues without this sink. Before the sink's next batch, or at the next start,
the feed reads the records again from the position in the sink's ledger. Lagging needs a ledger and a stateless
transform.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from lakefeed.clients.spark.errors import translate
from lakefeed.clients.spark.jvm import jars_of
from lakefeed.config.blocks import SecondarySinkChoice, SinkChoice
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import CheckpointMismatch, LakefeedError
from lakefeed.lazy import DataFrame, SparkSession, StructType
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.outcomes import check_outcomes, seconds_since_allowed, timing_commit
from lakefeed.ledger.snapshot_summary import Commit, SnapshotProperties
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.plugins import load
from lakefeed.records.decode.unavailable import Unavailable
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.base import BaseSink, BatchSinkDefinition
from lakefeed.sinks.definition import Reread, Sink, SinkContext, SinkDefinition, TriesRows
from lakefeed.stopwatch import timed

AnySink: TypeAlias = SinkDefinition[Any]

PAUSE_SECONDS = 60
"""The seconds before a failed sink is tried again."""


def sink_of(config: PipelineConfig, connections: Connections, *, folder: Path | None = None) -> AnySink:
    """Return the definition of the feed's own sink; the file's ``folder`` may have the modules of Python classes."""
    return _definition("sink", config.sink, config, connections, folder)


def sinks_of(config: PipelineConfig, connections: Connections, *, folder: Path | None = None) -> list[AnySink]:
    """Return the definitions of all sinks, the feed's own first; the arguments are those of ``sink_of``."""
    return [_definition(place, sink, config, connections, folder) for place, sink in config.sink_blocks]


def open_sink(
    config: PipelineConfig,
    connections: Connections,
    *,
    spark: SparkSession,
    claim: Claim,
    note: Callable[[str], None],
    folder: Path | None = None,
) -> Sink:
    """Open the feed's own sink, together with its secondary sinks if there are any.

    ``note`` gets a message when a secondary sink begins to lag, and when it resumes.
    """
    main, *others = [each.open(spark, claim) for each in sinks_of(config, connections, folder=folder)]
    if not others:
        return main
    begun = tuple(claim.noted.sinks)
    sides = [
        SecondarySink(name, sink, block.can_lag, is_new=name not in begun, unavailable=Unavailable.of_sink(config))
        for (name, block), sink in zip(config.sinks.items(), others, strict=True)
    ]
    if new := [side.name for side in sides if side.is_new]:
        claim.remember(sinks=(*begun, *new))
    return FanOutSink(config.name, main, sides, note=note)


def _definition(
    place: str, sink: SinkChoice, config: PipelineConfig, connections: Connections, folder: Path | None
) -> AnySink:
    settings = sink.chosen
    context = SinkContext(
        feed=config.name,
        place=f"{place}.{sink.kind}",
        connections=connections,
        output_mode=config.output_mode,
        evolves=config.schema_.on_change == "evolve",
        can_lag=isinstance(sink, SecondarySinkChoice) and sink.can_lag,
        source=config.source.kafka,
        folder=folder,
        unavailable=Unavailable.of_sink(config),
        is_transformed=config.transform is not None or config.decode.envelope is not None,
        blocks=tuple(config.added_blocks.values()) if sink is config.sink else (),
    )
    jars_of(type(settings).__module__)
    kind: type[Any] = load(settings.definition, "the sink's code", where=context.place)
    if issubclass(kind, SinkDefinition):
        return kind(settings, context)
    return BatchSinkDefinition(settings, context, kind)


@dataclass
class SecondarySink:
    """A sink in addition to the feed's own sink.

    Attributes:
        can_lag: whether the feed continues without this sink when the sink fails.
        is_new: whether the sink has no batch yet; if so, it begins with the next batch.
        unavailable: the placeholder of values that only the feed's own sink has stored.
        failure: the error that makes the sink lag; None if the sink does not lag.
    """

    name: str
    sink: Sink
    can_lag: bool
    is_new: bool
    unavailable: Unavailable | None = None
    failure: LakefeedError | None = None
    _fence: str | None = None
    _retry_at: float = 0.0
    _columns: tuple[StructType, StoredSchema | None, Sequence[Entry]] | None = None
    _is_ready: bool = field(default=False)

    def apply_schema(self, rows: StructType, stored: StoredSchema | None, entries: Sequence[Entry]) -> None:
        self._columns = (rows, stored, entries)
        self.sink.apply_schema(rows, stored, entries)

    def take_fence(self) -> None:
        if not self._is_ready and self._columns is not None and self.failure is not None:
            self.sink.apply_schema(*self._columns)
        self._fence = self.sink.take_fence()
        self._is_ready = True

    def is_due(self) -> bool:
        """Return whether a batch can be tried: the sink does not lag, or its pause after a failure is over."""
        return self.failure is None or time.monotonic() >= self._retry_at

    def wait(self, failure: LakefeedError) -> None:
        self.failure = failure
        self._retry_at = time.monotonic() + PAUSE_SECONDS
        self._is_ready = False

    def land(self, rows: DataFrame, commit: Commit, *, commit_id: str, again: Reread | None) -> None:
        """Write the records that the sink has missed, then the batch."""
        if not self._is_ready:
            self.take_fence()
        if self.sink.keeps_ledger:
            position = self.sink.position()
            if position is None and not self.is_new:
                raise CheckpointMismatch(
                    f"the sink '{self.name}' had batches of this feed, and has lost them",
                    where=self.sink.location(),
                    hint="restore the sink; or rename the sink in the file's block sinks: a new name starts over",
                )
            if position is not None:
                if position.ranges == commit.ranges:
                    return
                self.catch_up(commit, again)
                if self.sink.has(commit):
                    return
        self._land(rows, replace(commit, fence=self._fence), commit_id=commit_id)
        self.is_new = False
        self.failure = None

    def catch_up(self, commit: Commit, again: Reread | None) -> None:
        """Write the records from the sink's position to the start of this commit, if there are any."""
        position = self.sink.position()
        if position is None or again is None:
            return
        ends = position.ranges.ends
        spans = []
        for until in commit.ranges.ranges:
            start = ends.get(until.key, 0)
            spans.append(OffsetRange(until.topic, until.partition, start, max(start, until.start)))
        missed = [span for span in spans if span.records]
        if not missed:
            return
        if not self._is_ready:
            self.take_fence()
        ranges = OffsetRanges(tuple(spans), commit.ranges.topic_ids)
        with again(missed) as (rows, outcomes):
            between = Commit(commit.feed, commit.batch_id, ranges, fence=self._fence)
            self._land(rows, between, commit_id=outcomes.commit_id)
        self.failure = None

    def _land(self, rows: DataFrame, commit: Commit, *, commit_id: str) -> None:
        rows = rows if self.unavailable is None else self.unavailable.without(rows)
        self.sink.land(rows, commit, commit_id=commit_id)

    def commit_reset(self, commit: Commit, *, commit_id: str, delete_where: str | None) -> None:
        if self.sink.keeps_ledger and self.sink.position() is not None:
            fenced = replace(commit, fence=self._fence)
            self.sink.commit_reset(fenced, commit_id=commit_id, delete_where=delete_where)


class FanOutSink(BaseSink):
    """The feed's own sink and the secondary sinks as one sink, with the ledger of the feed's own sink."""

    def __init__(self, feed: str, main: Sink, sides: Sequence[SecondarySink], *, note: Callable[[str], None]) -> None:
        self._feed = feed
        self._main = main
        self._sides = tuple(sides)
        self._note = note
        self._again: Reread | None = None
        self.ledger = main.ledger
        self.location, self.stored_schema = main.location, main.stored_schema

    def position(self) -> Position | None:
        return self._main.position()

    @property
    def takes(self) -> Mapping[str, str]:
        return getattr(self._main, "takes", {})

    def begin(self, reread: Reread | None) -> None:
        self._again = reread
        position = self._main.position()
        if position is None:
            return
        ends = tuple(OffsetRange(each.topic, each.partition, each.end, each.end) for each in position.ranges.ranges)
        reached = Commit(self._feed, 0, OffsetRanges(ends, position.ranges.topic_ids))
        for side in self._sides:
            if side.sink.keeps_ledger and not side.is_new:
                self._try(side, partial(side.catch_up, reached, reread))

    def lagging(self) -> dict[str, str]:
        return {side.name: side.failure.what for side in self._sides if side.failure is not None}

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        for side in self._sides:
            self._try(side, partial(side.apply_schema, rows, stored, entries))
        self._main.apply_schema(rows, stored, entries)

    def take_fence(self) -> str | None:
        for side in self._sides:
            self._try(side, side.take_fence)
        return self._main.take_fence()

    def commit_reset(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        self._main.commit_reset(commit, commit_id=commit_id, delete_where=delete_where)
        for side in self._sides:
            side.commit_reset(commit, commit_id=commit_id, delete_where=delete_where)

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Compute the rows once, and write them to all sinks, to the feed's own sink last."""
        assert isinstance(commit, Commit)  # ``Pipeline`` refuses backfills and replays with several sinks.
        cached, spark = rows.persist(), rows.sparkSession
        try:
            with timed("rows"):
                cached.count()
            check_outcomes(spark, commit_id)
            for side in self._sides:
                if side.is_due():
                    name, since_allowed = side.name, partial(seconds_since_allowed, spark, commit_id)
                    with timed(f"write {name}"), timing_commit(f"commit {name}", since_allowed):
                        self._try(side, partial(side.land, cached, commit, commit_id=commit_id, again=self._again))
            with timed("write sink"):
                return self._main.land(cached, commit, commit_id=commit_id)
        finally:
            cached.unpersist()

    def try_rows(self, rows: DataFrame, commit: Commit) -> None:
        """Compute the rows, and try them in all sinks except those that can lag."""
        rows.write.format("noop").mode("overwrite").save()
        for sink in (*(side.sink for side in self._sides if not side.can_lag), self._main):
            if isinstance(sink, TriesRows):
                sink.try_rows(rows, commit)

    def _try(self, side: SecondarySink, act: Callable[[], None]) -> None:
        """Run ``act``; if it fails, a sink that can lag does so from now on.

        A new sink must not lag, because it has no position from which it could catch up later.
        """
        before = side.failure
        try:
            act()
        except Exception as error:
            if not side.can_lag:
                raise
            failure = translate(error)
            if side.is_new:
                what = f"the sink '{side.name}' cannot begin: {failure.what}"
                hint = "start the feed when that is repaired; or without the sink, which then gets later records only"
                raise type(failure)(what, where=failure.where, hint=hint) from error
            side.wait(failure)
            if before is None:
                self._note(f"the sink '{side.name}' waits: {failure.what}; it catches up by itself")
            return
        if before is not None and side.failure is None:
            self._note(f"the sink '{side.name}' resumes")
