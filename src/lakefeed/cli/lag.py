"""``lakefeed lag``: how far a feed or a consumer group is behind, without a running job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

import lakefeed
from lakefeed.cli.options import FILE, bootstrap_option, bootstrap_servers_of, output_option, parts_of
from lakefeed.cli.output import figure
from lakefeed.cli.watch import Shown, every_option, show, watch_option
from lakefeed.errors import ResourceMissing
from lakefeed.messages.printable import aligned
from lakefeed.messages.text import duration

if TYPE_CHECKING:
    from lakefeed.operations.lag import Lag


@click.command()
@click.argument("pipeline", type=FILE, required=False)
@click.option("--group", metavar="NAME", help="A consumer group, of any client, instead of the feed.")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic.  [default: all]")
@bootstrap_option
@watch_option
@every_option
@output_option
def lag(
    pipeline: Path | None,
    group: str | None,
    topics: tuple[str, ...],
    bootstrap_servers: str | None,
    watch: bool,
    every: float,
) -> None:
    """Show how many records PIPELINE, or a consumer group, is behind its topics, and how old the oldest of them is.

    A feed's position comes from its table or database, a group's from the broker: no job has to run. The age is that of
    the record at the position, which is read for it. With PIPELINE and --group, the file says how to reach the broker.
    """
    if pipeline is None and group is None:
        raise click.UsageError("name a pipeline file, or a consumer group by --group")
    if group is not None and not group.strip():
        # Kafka's client ends the process at a group without a name.
        raise click.UsageError("--group has no name")
    if pipeline is not None and bootstrap_servers is not None:
        raise click.UsageError("--bootstrap-servers is for --group without a pipeline file")
    from lakefeed.config.base import validated
    from lakefeed.config.sources import KafkaSource
    from lakefeed.operations.lag import feed_lag, group_lag, require_read

    declared = lakefeed.Pipeline.from_file(pipeline, to_run=False) if pipeline is not None else None
    if declared is not None and group is None:
        require_read(declared.config.kafka, topics, feed=declared.config.name)

    def look() -> Shown:
        if group is not None:
            if declared is not None:
                source = declared.config.kafka
            else:
                servers = bootstrap_servers_of(bootstrap_servers)
                source = validated(KafkaSource, "--bootstrap-servers", bootstrap_servers=servers, topics_pattern=".*")
            found = [group_lag(source, group, topics=topics or None)]
        else:
            assert declared is not None  # The usage was checked.
            parts = [part for topic in topics or (None,) for part in _parts(declared, topic)]
            found = [
                feed_lag(part.config, connections=part.connections, folder=part.feed.folder)
                for part in dict.fromkeys(parts)
            ]
            found = [_only(part, topics) for part in found]
            shown = {partition.topic for part in found for partition in part.partitions}
            if missing := [topic for topic in topics if topic not in shown]:
                raise ResourceMissing(f"there is no topic {missing[0]}", where=declared.config.kafka.bootstrap_servers)
        many = group is None and declared is not None and declared.config.has_many_tables
        documents = [part.as_dict() for part in found]
        return {"feeds": documents} if many else documents[0], lag_lines(found), 0

    raise Exit(show(look, watch=watch, every=every))


def _parts(declared: lakefeed.Pipeline, topic: str | None) -> list[lakefeed.Pipeline]:
    return parts_of(declared, topic if declared.config.has_many_tables else None)


def _only(found: Lag, topics: Sequence[str]) -> Lag:
    kept = tuple(part for part in found.partitions if not topics or part.topic in topics)
    return found.model_copy(update={"partitions": kept})


def lag_lines(found: Sequence[Lag]) -> list[str]:
    """Return the lines for people: a table of partitions below each feed or group."""
    lines: list[str] = []
    for shown in found:
        age = "" if not shown.records or shown.seconds is None else f", the oldest {duration(shown.seconds)} old"
        begun = "" if shown.is_known else " (it has not begun)"
        lines.append(f"{shown.name}: lag {figure(shown.records)}{age}{begun}")
        lines += partition_lines(shown)
    return lines


def partition_lines(found: Lag) -> list[str]:
    """Return a table of partitions."""
    rows = [("partition", "committed", "end", "lag", "oldest")]
    for part in found.partitions:
        age = "-" if part.seconds is None else duration(part.seconds) if part.lag else "0 s"
        committed = "-" if part.committed is None else str(part.committed)
        end = "-" if part.end is None else str(part.end)
        rows.append((f"{part.topic}-{part.partition}", committed, end, figure(part.lag), age))
    return [f"  {line}" for line in aligned(rows, left=1)]
