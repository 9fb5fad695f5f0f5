"""``lakefeed read``: reads chosen records once, and shows them or writes them to files or a table."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

import lakefeed
from lakefeed.cli.options import (
    PIPELINE_FILE,
    bootstrap_option,
    bootstrap_servers_of,
    decode_block_of,
    decode_option,
    is_pipeline_file,
    log_file_option,
    master_option,
    output_option,
    refuse_options_of_topics,
    registry_option,
    set_option,
    topic_option,
)
from lakefeed.cli.output import column_lines, echo, emit, is_json, say
from lakefeed.clients.environment import default_environment
from lakefeed.clients.spark.session import log_path, session
from lakefeed.errors import ConfigError
from lakefeed.lazy import SparkSession
from lakefeed.messages.printable import printable, printable_json
from lakefeed.offsets.ranges import OffsetRange

if TYPE_CHECKING:
    from lakefeed.clients.kafka.selection import Selection
    from lakefeed_inspect.read import BatchRead, ConsoleResult, ReadSummary, Target

SHOWN = 20
WIDEST = 60
REASONS = 5


@click.command()
@click.argument("source", metavar="[PIPELINE|TOPIC]", default=PIPELINE_FILE)
@click.option(
    "--range",
    "ranges",
    multiple=True,
    metavar="TOPIC:PARTITION:START:END",
    help="Records from offset START to END - 1.",
)
@click.option("--since", metavar="TIME", help="Records from this time on: 2026-11-20T06:30 (UTC), …T06:30+01:00.")
@click.option("--until", metavar="TIME", help="Records before this time.")
@click.option("--last", metavar="DURATION", help="Only records of the last 90s, 15m, 2h or 7d.")
@click.option(
    "--latest-per-key", is_flag=True, help="Only each key's newest record; none for a key whose newest value is null."
)
@click.option(
    "--to", metavar="PATH|TABLE", help="A folder, s3://bucket/path or catalog.namespace.table.  [default: stdout]"
)
@click.option(
    "--format",
    "row_format",
    type=click.Choice(["table", "json", "csv", "parquet"]),
    help="The format of the rows.  [default: table; parquet for a path]",
)
@click.option("--append", is_flag=True, help="Add to an existing path or table.")
@click.option("--limit", type=click.IntRange(0), default=SHOWN, show_default=True, help="The most rows; 0 for all.")
@click.option("--on-error", type=click.Choice(["fail", "skip"]), help="Stop at an unreadable record, or count it.")
@click.option("--on-null", type=click.Choice(["fail", "skip", "keep"]), help="How to treat null values (tombstones).")
@decode_option
@registry_option
@bootstrap_option
@topic_option
@set_option
@master_option
@log_file_option
@output_option
def read(**options: Any) -> None:
    """Read records of PIPELINE or TOPIC once; show or write them.

    Default: all records that the topics have now. It is an error if a topic no longer has offsets of --range,
    or does not have them yet. Changes neither the feed's position nor its table.

    The records of a PIPELINE are decoded and transformed as in a run; dead letters are only counted. The records of a
    TOPIC are decoded as Avro by the registry, or as --decode says: a format, or a block such as '{csv: {schema_ddl: "a
    INT"}}'.
    """
    from lakefeed.clients.kafka.selection import offset_ranges
    from lakefeed_inspect.read import ConsoleResult

    order = _Order(**options)
    selection = order.selection()
    reading, start_session = order.reading()
    offset_ranges(reading.source, selection)  # Report missing offsets before a JVM starts.
    spark = start_session()
    target = order.target(spark)
    done = reading.to(target, selection, spark=spark, latest=order.latest_per_key)
    if not isinstance(target, ConsoleResult):
        emit(done.as_dict(), _summary_lines(done))
    elif is_json():
        emit({**done.as_dict(), "shown": [json.loads(row or "{}") for (row,) in target.rows]}, "")
    else:
        _print_rows(target, order.row_format)
        say(_summary_lines(done))


class _Order(SimpleNamespace):
    """The command's options, as attributes."""

    def selection(self) -> Selection:
        from lakefeed.clients.kafka.selection import Selection, ago

        if self.last is not None and self.since is not None:
            raise ConfigError("--last and --since both choose the first record", hint="remove one of the two")
        since = ago(self.last) if self.last is not None else self.since
        ranges = [OffsetRange.parse(text) for text in self.ranges]
        return Selection.of(ranges or None, since=since, until=self.until)

    def reading(self) -> tuple[BatchRead, Callable[[], SparkSession]]:
        """Return the read's settings, and a function that starts its Spark session."""
        reading, start = self._of_pipeline() if is_pipeline_file(self.source) else self._of_topic()
        if self.on_error is not None:
            reading = reading.on_error(self.on_error)
        if self.on_null is not None:
            reading = replace(reading, policy=replace(reading.policy, on_null=self.on_null))
        return reading, start

    def _of_pipeline(self) -> tuple[BatchRead, Callable[[], SparkSession]]:
        from lakefeed_inspect.read import BatchRead

        refuse_options_of_topics(self.decode, self.registry, self.bootstrap_servers)
        declared = lakefeed.Pipeline.from_file(self.source, overrides=self.overrides, to_run=False)
        declared = declared.of_topic(self.topic) if self.topic is not None else declared
        log_file = self.log_file or log_path(f"{declared.config.name}-read")
        return BatchRead.of(declared), partial(declared.session, master=self.master, log_file=log_file)

    def _of_topic(self) -> tuple[BatchRead, Callable[[], SparkSession]]:
        from lakefeed.config.base import validated
        from lakefeed.config.decoding import Decode
        from lakefeed.config.kafka_client import KafkaLogin
        from lakefeed.config.sources import KafkaSource
        from lakefeed.records.decode import RecordPolicy
        from lakefeed_inspect.read import BatchRead

        if self.overrides or self.topic is not None:
            hint = f"leave both out to read the topic {self.source}, or name a pipeline file"
            raise ConfigError("--set and --topic are for a pipeline file", where=self.source, hint=hint)
        servers = bootstrap_servers_of(self.bootstrap_servers)
        login = KafkaLogin.from_environment(default_environment())
        source = validated(KafkaSource, "TOPIC", bootstrap_servers=servers, topics=[self.source], login=login)
        decode = validated(Decode, "--decode", **decode_block_of(self.decode or "avro", self.registry))
        start = partial(session, "lakefeed-read", master=self.master, log_file=self.log_file or log_path("read"))
        policy = RecordPolicy(
            on_null="fail" if decode.on_null == "dead_letter" else decode.on_null,
            on_bad_timestamp=decode.on_bad_timestamp,
        )
        return BatchRead(name="records", source=source, decode=decode, policy=policy), start

    def target(self, spark: SparkSession) -> Target:
        from lakefeed_inspect.read import TABLE, ConsoleResult, Files, PlainTable

        if self.to is None:
            if self.row_format == "parquet" or self.append:
                raise ConfigError("--append and --format parquet need --to", hint="name a path or a table with --to")
            return ConsoleResult(limit=self.limit or None, as_json=self.row_format == "json" or is_json())
        if TABLE.fullmatch(self.to):
            if self.row_format is not None:
                hint = f"leave --format out; for the path of this name, write ./{self.to}"
                raise ConfigError("--format is for a path, and --to names a table", where=self.to, hint=hint)
            return PlainTable(spark, self.to, append=self.append)
        if self.row_format == "table":
            hint = "choose --format parquet, csv or json"
            raise ConfigError("files cannot have the format table", where="--format table", hint=hint)
        return Files(spark, self.to, file_format=self.row_format or "parquet", append=self.append)


def _print_rows(shown: ConsoleResult, row_format: str | None) -> None:
    if row_format == "json":
        for (row,) in shown.rows:
            click.echo(printable_json(row or "{}"))
    elif row_format == "csv":
        # Write values unchanged into files. For a terminal, which could obey control characters, escape these.
        escape: Callable[[str], str] = printable if sys.stdout.isatty() else str
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(shown.columns)
        writer.writerows([cell and escape(cell) for cell in row] for row in shown.rows)
        sys.stdout.flush()
    else:
        rows = [tuple(_cell(cell) for cell in row) for row in shown.rows]
        for line in column_lines([tuple(shown.columns), *rows], left=len(shown.columns), indent=0):
            echo(line)


def _cell(text: str | None) -> str:
    line = "null" if text is None else " ".join(text.splitlines())
    line = printable(line[:WIDEST]) + line[WIDEST:]
    return line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…"


def _summary_lines(done: ReadSummary) -> Iterator[str]:
    yield from done.notes
    if not done.whole:
        yield f"the first {done.rows:,} rows of {done.offsets:,} offsets; --limit 0 shows all, --to writes them"
        return
    partitions = len({part.key for part in done.ranges})
    rows = "" if done.rows is None else f", {done.rows:,} rows"
    yield (
        f"{done.target}: {done.records:,} records of {done.offsets:,} offsets in {partitions} partitions{rows}"
        f" in {done.seconds:.1f} s"
    )
    if done.skipped:
        yield f"{done.skipped:,} skipped by rules of the pipeline"
    if done.unreadable:
        yield f"{done.unreadable:,} are unreadable, or break a rule:"
    for reason in done.reasons[:REASONS]:
        yield f"{reason.count:>10,}  {reason.reason} (example: {reason.sample})"
