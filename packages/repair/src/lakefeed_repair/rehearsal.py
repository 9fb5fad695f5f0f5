"""Land records by an old and by a new pipeline file into temporary tables, and compare the rows by offset in Spark."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakefeed import Pipeline, open_table
from lakefeed.clients.kafka.selection import ago, is_ago, require_held, topics_of
from lakefeed.clients.spark.connect import classic
from lakefeed.clients.spark.errors import translating
from lakefeed.config.models import PipelineConfig
from lakefeed.config.values import catalog_of
from lakefeed.errors import ConfigError, DecodeError, ErrorBudgetExceeded, JobFailed, ResourceMissing, RowsRefused
from lakefeed.feed.s3_requests import s3_requests
from lakefeed.lazy import SparkSession
from lakefeed.ledger.outcomes import ZERO, total
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.ledger.snapshots import ancestors, commits_of
from lakefeed.offsets.ranges import has_state, union
from lakefeed_repair.compare import KEYS, LETTER, FoundDifference, Landed, compare

if TYPE_CHECKING:
    from pyiceberg.table import Table

PAGE = "test-a-pipeline"
POSITION = ("topic", "partition", "offset")
STOPS = (DecodeError, ErrorBudgetExceeded, JobFailed, RowsRefused)
"""The errors of records that stop a feed."""
INSTEAD = "test the new file with lakefeed test"
PREFIX, ABANDONED_SECONDS = "lakefeed_rehearsal_", 24 * 3600
_LAST = re.compile(r"\s*([1-9]\d{0,14})\s*(?:records?|(batch(?:es)?))?\s*")
_NAME = re.compile(rf"{PREFIX}(\d+)_([0-9a-f]{{8}})_(\d+)_\w+")


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """The differences, and the figures of both runs; ``batches`` is the number of batches to compare."""

    feed: str
    batches: int
    ranges: tuple[str, ...]
    old: Mapping[str, int]
    new: Mapping[str, int]
    differences: tuple[FoundDifference, ...]
    notes: tuple[str, ...]

    def refused(self, allowed: Collection[str]) -> list[str]:
        """Return the names of the differences that the user has not allowed."""
        return [name for name in dict.fromkeys(each.name for each in self.differences) if name not in allowed]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def rehearse(
    new: Pipeline,
    old: Pipeline,
    *,
    last: str = "100000",
    masked: Collection[str] = (),
    spark: SparkSession | None = None,
) -> Rehearsal:
    """Land the newest records of the old file's feed by both files, in the batches of the feed, and compare.

    Args:
        last: how many of the newest records, rounded up to whole commits: ``200000``, ``5 batches`` or ``10m``.
        masked: the columns whose values are not shown; ``*`` for all.

    Raises:
        ConfigError: the files cannot be compared, or the feed has no commit.
        ResourceMissing: the topics no longer have the records.
    """
    require_comparable(old, new)
    beside = old.config.sink.ledger_table
    table = open_table(beside, connections=old.connections)
    commits = choose(table, old.config.name, last)
    _require_records(new, commits)
    spark = classic(spark) or new.session()
    with translating(), temporary_tables(spark, table) as own:
        prefix = f"{beside.rpartition('.')[0]}.{own}"
        ours = _land(spark, new, commits, f"{prefix}_new")
        done = commits[: ours.figures["batches"]]
        theirs = _land(spark, old, done, f"{prefix}_old")
        if theirs.stopped is not None:
            hint = "rehearse other records by --last"
            raise ConfigError(f"the old file now stops at these records: {theirs.stopped}", where=beside, hint=hint)
        counts, notes = sum((total(commit.counts) for commit in done), ZERO), ours.notes
        ledger = {"rows": sum(commit.rows for commit in done), "dead letters": counts.dead_letters}
        if any(number != theirs.figures[name.replace(" ", "_")] for name, number in ledger.items()):
            had = " and ".join(f"{number:,} {name}" for name, number in ledger.items())
            notes = (f"the feed landed {had} of these records; the old file now lands others", *notes)
        stops = [FoundDifference(name="@stopped", what=f"the feed would stop: {ours.stopped}")] if ours.stopped else []
        tables = (open_table(each.table, connections=new.connections) for each in (theirs, ours))
        layouts = [
            FoundDifference(name=key, what=f"{was} → {now}")
            for key, was, now in zip(("@partition_by", "@sort_by"), *map(_layout, tables), strict=True)
            if was != now
        ]
        return Rehearsal(
            feed=old.config.name,
            batches=len(commits),
            ranges=tuple(str(span) for span in union(span for commit in done for span in commit.ranges.ranges)),
            old=theirs.figures,
            new=ours.figures,
            differences=(*stops, *compare(theirs, ours, masked=masked), *layouts),
            notes=notes,
        )


def require_comparable(old: Pipeline, new: Pipeline) -> None:
    """Raise a ConfigError unless both files land the same topics in an Iceberg table, without state between batches."""
    for pipeline in (old, new):
        pipeline.require_one_table()
        config, sink, source = pipeline.config, pipeline.config.sink.iceberg, pipeline.config.source
        if source.kafka is None or sink is None or sink.mode != "append" or sink.routed_by is not None:
            raise ConfigError(
                "a rehearsal compares only rows in one Iceberg table with mode: append, and only records of Kafka",
                where=f"pipeline '{config.name}': source.{source.kind}, sink.{config.sink.kind}",
                hint=INSTEAD,
            )
    kafka = [each.config.kafka for each in (old, new)]
    one, other = (each.topics_pattern or ", ".join(sorted(each.topics or ())) for each in kafka)
    if one != other:
        what, hint = f"the old file reads {one}, the new one {other}", "name the same topics in both files"
        raise ConfigError(what, where="source.kafka", hint=hint)
    name = catalog_of(old.config.sink.ledger_table)
    if old.connections.catalog(name) != new.connections.catalog(name):
        hint = "rehearse with the catalog of the old file, in which the temporary tables are made and removed"
        raise ConfigError(
            "both files must use the same catalog with the same settings", where=f"catalogs.{name}", hint=hint
        )


def choose(table: Table, feed: str, last: str) -> list[Commit]:
    """Return the feed's newest commits with records, oldest first, as many as ``last`` requires."""
    line, where = ancestors(table, feed)[0], ".".join(table.name())
    times = {snapshot.snapshot_id: snapshot.timestamp_ms / 1000 for snapshot in line}
    commits, chosen, match = list(commits_of(line, feed))[::-1], list[Commit](), _LAST.fullmatch(last)
    if match is None and not is_ago(last):
        hint = "write a number of records (200000) or of batches ('5 batches'), or a time (10m)"
        raise ConfigError(f"'{last}' does not tell how many records to rehearse", where="--last", hint=hint)
    newest = datetime.fromtimestamp(max(times.values(), default=0), UTC)
    since = 0.0 if match is not None else ago(last, now=newest).timestamp()
    for commit in commits:
        changed = commit.ranges.topic_ids.items() - commits[0].ranges.topic_ids.items()
        size = len(chosen) if match and match[2] else sum(each.ranges.records for each in chosen)
        is_enough = size >= int(match[1]) if match is not None else times[commit.snapshot_id or 0] < since
        if commit.move is not None or commit.adopted is not None or changed or is_enough:
            break
        if has_state(commit.ranges):
            raise ConfigError(f"feed '{feed}' keeps state from batch to batch", where=where, hint=INSTEAD)
        if commit.ranges.records:
            chosen.append(commit)
    if not chosen:
        hint = "run the feed first; or name by --against the file of the feed that fills the table"
        raise ConfigError(f"the ledger has no batch of feed '{feed}' to compare with", where=where, hint=hint)
    return chosen[::-1]


def _require_records(new: Pipeline, commits: Sequence[Commit]) -> None:
    """Raise a ResourceMissing if the topics were recreated, or no longer have the records."""
    ids, topics, where = commits[-1].ranges.topic_ids, topics_of(new.config.kafka), new.config.kafka.bootstrap_servers
    for name, topic in topics.items():
        if ids.get(name, topic.topic_id) != topic.topic_id:
            hint = "name the feed's brokers; a topic that was recreated no longer has the records"
            raise ResourceMissing(f"the topic {name} is not the one that the feed has read", where=where, hint=hint)
    try:
        require_held(union(span for commit in commits for span in commit.ranges.ranges), topics, where=where)
    except ResourceMissing as gone:
        hint = "rehearse fewer records, such as --last '1 batch': the topic has no older ones any more"
        raise ResourceMissing(gone.what, where=where, hint=hint) from None


@contextmanager
def temporary_tables(spark: SparkSession, beside: Table) -> Iterator[str]:
    """Yield a prefix for names of tables in the namespace of a table; remove these tables at the end.

    The prefix has the time, the machine and the process, so that a later rehearsal finds and removes the tables of a
    killed one.
    """
    own = own_prefix()
    _remove(spark, beside, is_left)
    try:
        yield own
    finally:
        _remove(spark, beside, lambda name: name.startswith(own))


def _remove(spark: SparkSession, beside: Table, chosen: Callable[[str], bool]) -> None:
    """Drop the chosen tables, and delete their folders; a killed rehearsal may have left a folder without a table."""
    session: Any = spark
    hadoop, catalog, places = session._jvm.org.apache.hadoop.fs, beside.catalog, [beside.location()]
    for identifier in catalog.list_tables(beside.name()[:-1]):
        if chosen(identifier[-1]):
            places.append(catalog.load_table(identifier).location())
            catalog.drop_table(identifier)
    for parent in {place.rstrip("/").rpartition("/")[0] for place in places}:
        pattern = hadoop.Path(f"{parent}/{PREFIX}*")
        files = pattern.getFileSystem(session._jsc.hadoopConfiguration())
        for folder in files.globStatus(pattern) or ():
            if chosen(folder.getPath().getName()):
                files.delete(folder.getPath(), True)


def own_prefix() -> str:
    return f"{PREFIX}{int(time.time())}_{_here()}_{os.getpid()}_{uuid.uuid4().hex[:6]}"


def is_left(name: str) -> bool:
    """Return True for a table of a killed rehearsal: its process on this machine has ended, or it is a day old."""
    match = _NAME.fullmatch(name)
    if match is None or time.time() - int(match[1]) > ABANDONED_SECONDS:
        return match is not None
    with suppress(PermissionError):  # A process of another user still runs.
        try:
            os.kill(int(match[3]), 0)
        except ProcessLookupError:
            return match[2] == _here()
    return False


def _here() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _land(spark: SparkSession, pipeline: Pipeline, commits: Sequence[Commit], name: str) -> Landed:
    """Land the records of these commits in the table ``name``, with a commit for each of them."""
    feed = replace(pipeline.feed, config=_in_place(pipeline.config, name))
    table = feed.ledger_table(spark)
    writer = feed.begin_writer(spark, table, feed.source.read_batch(spark, ()))
    if missing := [key for key in KEYS if key not in spark.table(name).columns]:
        raise ConfigError(
            f"the transform leaves out {', '.join(missing)}, by which a rehearsal compares rows",
            where=f"pipeline '{pipeline.config.name}', transform",
            hint="select these columns in the query, too; the rehearsal adds them to the decoded rows",
        )
    counts, rows, seconds, done, stopped, notes = ZERO, 0, 0.0, 0, None, dict[str, None]()
    for commit in commits:
        began = time.monotonic()
        try:
            with translating():
                records = feed.source.read_batch(spark, commit.ranges.ranges)
                result = writer.write(records, commit.ranges, commit.batch_id)
        except STOPS as error:
            stopped = str(error)
            break
        counts, rows, done = counts + result.counts, rows + result.rows, done + 1
        seconds, notes = seconds + time.monotonic() - began, notes | dict.fromkeys(result.notes)
    writer.reader.close()
    place = table.location().partition("://")[2]
    letters = spark.createDataFrame([], "topic STRING, partition INT, offset BIGINT, reason STRING")
    if feed.config.dead_letters is not None:
        letters = spark.table(f"{name}_dead").select(*LETTER)
    figures = {"batches": done, "records": counts.records, "rows": rows, "dead_letters": counts.dead_letters}
    figures |= {"skipped": counts.skipped, "rows_per_second": round(rows / seconds) if seconds else 0}
    figures |= {"s3_requests": s3_requests(spark).below([place, f"{place}_dead"]).total}
    return Landed(
        table=name,
        rows=spark.table(name),
        letters=letters,
        helpers={key for key, each in zip(KEYS, POSITION, strict=True) if each not in pipeline.config.decode.metadata},
        figures=figures,
        stopped=stopped,
        notes=tuple(notes),
    )


def _in_place(config: PipelineConfig, name: str) -> PipelineConfig:
    """Return the pipeline with the table ``name``, a table beside it for dead letters, and offsets in the rows."""
    iceberg, letters = config.sink.iceberg, config.dead_letters
    assert iceberg is not None  # ``require_comparable`` refuses other sinks.
    # With write.data.path, files would lie in the folder of the feed's files; with gc.enabled off, they would stay.
    properties = {key: text for key, text in iceberg.properties.items() if not key.endswith(("path", "gc.enabled"))}
    own = {"table": name, "properties": properties, "branch": None, "publish": None}
    if letters is not None:
        letters = letters.model_copy(update={"table": f"{name}_dead", "topic": None})
    metadata = list(dict.fromkeys((*config.decode.metadata, *POSITION)))
    return config.model_copy(
        update={
            "decode": config.decode.model_copy(update={"metadata": metadata}),
            "sink": config.sink.model_copy(update={"iceberg": iceberg.model_copy(update=own).with_names_made(())}),
            "sinks": {},
            "dead_letters": letters,
        }
    )


def _layout(table: Table) -> tuple[str, str]:
    """Return the table's partition fields and sort order as texts."""
    name = table.schema().find_column_name
    parts = [f"{field.transform}({name(field.source_id)})" for field in table.spec().fields]
    order = [f"{field.transform}({name(field.source_id)}) {field.direction}" for field in table.sort_order().fields]
    return ", ".join(parts) or "none", ", ".join(order) or "none"
