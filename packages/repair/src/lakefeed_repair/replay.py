"""Land dead letters with the current schema and policy, exactly once, and delete them.

A replay marks the letters that can now be rows with its id. It appends their rows to the feed's table in one commit
with this id, and deletes the marked letters. After an interruption, the next replay looks for the id in the table. If
the table has it, the replay deletes the marked letters, otherwise it removes the marks. If the sink refuses some of the
rows, the replay finds their letters, removes all marks, and tries the other letters.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import groupby
from operator import or_

from lakefeed import Pipeline
from lakefeed.clients.spark.connect import classic
from lakefeed.clients.spark.errors import translating
from lakefeed.clients.spark.session import activate, copy_of
from lakefeed.errors import ResourceMissing
from lakefeed.feed.batch_writer import Committed, Isolated
from lakefeed.feed.feed import Feed
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.snapshot_summary import Replay
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.operations.followers import FollowedRun
from lakefeed.records.decode import RECORD
from lakefeed.records.sources import SourceTopics
from lakefeed.sinks.dead_letters.store import DeadLetterFilter, DeadLetterStore

PAGE = "dead-letters"

REPLAYS = ".replays"
"""Suffix of the feed's name in the fence of its replays (``Ledger.java``)."""


@dataclass(frozen=True)
class Replayed:
    """The result of a replay.

    Attributes:
        replay_id: the id in the replay's commit in the table; None if no letter could land.
        rows: the number of rows written; a transform may make no or several rows of a letter.
        skipped: the number of letters that the current policy skips.
        still_dead: the number of letters that still cannot be rows; their reasons are updated.
        finished_earlier: the number of letters that this replay deleted, because an interrupted replay had landed them.
    """

    replay_id: str | None
    rows: int
    skipped: int
    still_dead: int
    finished_earlier: int


@dataclass(frozen=True)
class MarkedLetters:
    """The letters that a replay lands. ``Replay.ranges`` are ranges of their indexes, not of offsets."""

    records: DataFrame

    @cached_property
    def positions(self) -> list[tuple[str, int, int]]:
        return sorted(tuple(each) for each in self.records.select("topic", "partition", "offset").collect())

    def offsets(self, part: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return the offset ranges of the letters with these indexes; the ranges contain no other letters."""
        positions = (position for span in part for position in self.positions[span.start : span.end])
        groups = (list(group) for _, group in groupby(positions, key=lambda position: position[:2]))
        return [OffsetRange(*group[0], group[-1][2] + 1) for group in groups]

    def read(self, part: Sequence[OffsetRange]) -> DataFrame:
        topic, partition, offset = sf.col("topic"), sf.col("partition"), sf.col("offset")
        spans = (
            (topic == each.topic) & (partition == each.partition) & offset.between(each.start, each.end - 1)
            for each in self.offsets(part)
        )
        return self.records.filter(reduce(or_, spans, sf.lit(False)))


def replay(
    pipeline: Pipeline,
    choice: DeadLetterFilter,
    *,
    spark: SparkSession | None = None,
    step: Callable[[str], None] = lambda done: None,
) -> Replayed:
    """Decode dead letters with the present settings; land the rows of readable ones exactly once.

    A letter stays a dead letter if its rows cannot be computed, or if the table refuses them. ``step`` is called with
    ``marked`` when the letters are marked, and with ``landed`` when their rows are written.
    """
    pipeline.dead_letters()  # Raise the error for a pipeline without dead letters before Spark starts.
    pipeline.require_one_sink()
    pipeline.config.sink.require("replay", where=pipeline.config.name)
    with translating():
        return _replay(pipeline.feed, choice, classic(spark) or pipeline.session(), step=step)


@contextmanager
def offer_replay(run: FollowedRun) -> Iterator[None]:
    """Offer operators the action ``replay`` while a pipeline runs, if the pipeline supports replays."""
    config, spark = run.config, run.spark
    if spark is not None and config.dead_letters and not config.sinks and config.sink.refusal("replay") is None:
        feed = Feed(config=config, connections=run.connections, view=config.name, folder=run.folder)
        run.monitor.control.offer("replay", lambda request: _replay_all(feed, copy_of(spark)))
    yield


def _replay_all(feed: Feed, spark: SparkSession) -> str:
    """Replay the dead letters of all tables of a feed; return the result as text."""
    activate(spark)
    parts, many = [feed], feed.config.has_many_tables
    if many:
        parts = [feed.for_topic(topic) for topic in SourceTopics(feed.config.kafka).names()]
    # With a table per topic, skip topics without dead letters: their dead-letter tables may not exist yet.
    choices = [(part, DeadLetterFilter(feed=part.config.name)) for part in parts]
    with translating():
        done = [_replay(part, choice, spark) for part, choice in choices if not many or _has_letters(part, choice)]
    rows, dead = sum(result.rows for result in done), sum(result.still_dead for result in done)
    return f"{rows:,} rows written, {dead:,} records are still dead letters"


def _has_letters(feed: Feed, choice: DeadLetterFilter) -> bool:
    try:
        return bool(feed.dead_letters().find(choice))
    except ResourceMissing:
        return False


def _replay(
    feed: Feed, choice: DeadLetterFilter, spark: SparkSession, *, step: Callable[[str], None] = lambda done: None
) -> Replayed:
    """Land the chosen dead letters of a feed that can be rows now."""
    table, letters = feed.ledger_table(spark), feed.dead_letter_store(spark)
    writer = feed.begin_writer(spark, table, letters.records(choice), fenced=False)
    # The fence stops an earlier replay that may still run, so it is safe to remove that replay's marks.
    fence = table.take_fence(REPLAYS)
    finished = _finish_earlier(letters, table.ledger)
    while True:
        classified = writer.rows.classify(letters.records(choice))
        columns = [f"{RECORD}.{name}" for name in ("record.topic", "record.partition", "record.offset", "reason")]
        verdicts = classified.select(*columns).localCheckpoint()
        good = verdicts.filter("reason IS NULL").drop("reason")
        landable, still_dead = good.count(), verdicts.filter("reason IS NOT NULL")
        if landable == 0:
            replay_id, rows, skipped = None, 0, 0
            break
        replay_id = uuid.uuid4().hex
        letters.mark(good, replay_id)
        step("marked")
        marked = MarkedLetters(letters.marked(replay_id))
        # The commit deletes all marked letters, so it must fail unless all of them become rows.
        attempting = writer.of_only_rows(marked.read)
        match attempting.attempt(marked.records, Replay(feed.config.name, replay_id, fence, landable)):
            case Committed(landed, outcomes):
                step("landed")
                letters.delete_marked(replay_id)
                rows, skipped = landed or 0, outcomes.counts.skipped
                break
            case Isolated(failing):
                reasons = {span: why for part, why in failing.items() for span in marked.offsets([part])}
                attempting.prepare_next(Isolated(reasons), marked.records)
            case refused:
                attempting.prepare_next(refused, marked.records)
        letters.unmark(replay_id)
    left = still_dead.count()
    if left:
        letters.judge_again(still_dead)
    return Replayed(replay_id, rows, skipped, left, finished)


def _finish_earlier(letters: DeadLetterStore, ledger: IcebergLedger) -> int:
    """Delete the letters that interrupted replays have landed; return their number. Unmark their other letters."""
    finished = 0
    for replay_id in letters.open_replays():
        if ledger.has_replay(replay_id):
            finished += letters.marked(replay_id).count()
            letters.delete_marked(replay_id)
        else:
            letters.unmark(replay_id)
    return finished
