"""``lakefeed topics``: create, list and show topics, and show their decoded records."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

import lakefeed
from lakefeed.cli.options import (
    PIPELINE_FILE,
    CommandGroup,
    bootstrap_option,
    bootstrap_servers_of,
    decode_block_of,
    decode_option,
    is_pipeline_file,
    options_of,
    output_option,
    refuse_options_of_topics,
    registry_option,
    set_option,
)
from lakefeed.cli.output import column_lines, echo, emit, styled
from lakefeed.errors import ConfigError
from lakefeed.messages.printable import aligned, printable, printable_json
from lakefeed.messages.redaction import redacted
from lakefeed_local.arguments import kafka_options, pairs

if TYPE_CHECKING:
    from lakefeed.clients.kafka.topics import Topics
    from lakefeed_local.topics.profile import TopicProfile
    from lakefeed_local.topics.record_view import ShownRecord
    from lakefeed_local.topics.topic import Topic, TopicSample

SAMPLED = 20
BEFORE = 10
WIDEST = 60
LONGEST_VALUE = 4_000
BARS = " ▁▂▃▄▅▆▇█"

usual_options = options_of(bootstrap_option, output_option)
source_options = options_of(
    click.argument("source", metavar="[PIPELINE|TOPIC]", default=PIPELINE_FILE),
    decode_option,
    registry_option,
    bootstrap_option,
    click.option("--topic", metavar="NAME", help="Only this topic of a PIPELINE."),
    set_option,
)
place_options = options_of(
    click.option(
        "--from", "start", metavar="PLACE", help="earliest, latest, a time (2026-11-20T06:30) or an age (15m, 2h, 7d)."
    ),
    click.option("--partition", type=click.IntRange(0), help="Only this partition."),
)
choice_options = options_of(
    click.option("--offset", type=int, help="Begin at this offset of the partition; -10 for its ten last offsets."),
    click.option("--key", help="Only records with this key."),
    click.option("--where", metavar="SQL", help='A condition: "fare > 100 AND kafka_partition = 3".'),
    click.option("--fields", metavar="SQL", help='Columns instead of the whole value: "fare, upper(zone) AS zone".'),
    click.option(
        "--output",
        type=click.Choice(["table", "text", "json", "raw"]),
        help="json: one object per line; raw: the values' bytes.  [default: table if it fits, else text]",
    ),
)


@click.group(cls=CommandGroup)
def topics() -> None:
    """Create and fill topics, and show their records."""


@topics.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), default=10, show_default=True)
@click.option("--replication-factor", type=click.IntRange(1), help="Copies of each partition.  [default: the broker's]")
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="A topic setting, for example retention.ms=3600000.")
@click.option("--if-not-exists", is_flag=True, help="Leave an existing topic unchanged.")
@usual_options
def create(
    name: str,
    partitions: int,
    replication_factor: int | None,
    config: tuple[str, ...],
    if_not_exists: bool,
    bootstrap_servers: str | None,
) -> None:
    """Create the topic NAME."""
    created = _topics(bootstrap_servers).create(
        name,
        partitions=partitions,
        replication_factor=replication_factor,
        config=pairs(config, option="--config"),
        exist_ok=if_not_exists,
    )
    text = f"created {name} with {partitions} partitions" if created else f"{name} was there already"
    emit({"topic": name, "created": created}, text)


@topics.command()
@click.argument("name")
@registry_option
@usual_options
def show(name: str, registry: str | None, bootstrap_servers: str | None) -> None:
    """Show the topic NAME."""
    from lakefeed_local.topics.topic import Topic

    found = Topic(name, bootstrap_servers=bootstrap_servers_of(bootstrap_servers), registry=registry).describe()

    def text() -> Iterator[str]:
        topic = found.description
        yield f"{topic.name}  id {topic.topic_id}  offsets {topic.offsets:,}"
        for key, value in found.settings.items():
            yield f"  {key} = {value}"
        for schema in found.schemas:
            yield f"  {schema.subject}: {found.schema_text(schema)}"
        for partition in topic.partitions:
            leader = "none" if partition.leader is None else partition.leader
            offsets = f"{partition.start_offset:,} to {partition.end_offset:,}"
            yield f"  partition {partition.id}  leader {leader}  offsets {offsets}"

    emit(found.as_dict(), text())


@topics.command("list")
@click.option("--details", is_flag=True, help="Also show the numbers of partitions and offsets.")
@usual_options
def list_(details: bool, bootstrap_servers: str | None) -> None:
    """List all topics except Kafka's own."""
    cluster = _topics(bootstrap_servers)
    names = cluster.list()
    if not details:
        emit(names, names)
        return
    found = [
        {"topic": name, "partitions": len(topic.partitions), "offsets": topic.offsets}
        for name, topic in cluster.describe_all(names).items()
    ]
    cells = [(str(each["topic"]), f"{each['partitions']:,}", f"{each['offsets']:,}") for each in found]
    emit(found, column_lines([("topic", "partitions", "offsets"), *cells], left=1, indent=0))


@topics.command()
@source_options
@place_options
@choice_options
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=SAMPLED, show_default=True, help="The most records to show."
)
@click.option(
    "--scan",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="The most records to search for --key and --where.",
)
def sample(output: str | None, **options: Any) -> None:
    """Show records of a TOPIC, or of a PIPELINE's topics.

    Shows the newest records; with --from or --offset, the first records from that time or offset on. Decodes a TOPIC's
    records with the writer's schema in the registry, else shows JSON, text or bytes. Decodes a PIPELINE's records as
    its file says. Changes nothing.

    --where and --fields are Spark SQL over the fields of the value, kafka_partition, kafka_offset, kafka_timestamp,
    kafka_key, kafka_headers, schema_id and error: --where "error IS NOT NULL" shows records that cannot be read.
    """
    topic = _topic(options)
    found = topic.sample(**options)
    if output in ("json", "raw"):
        for record in found.records:
            _print_record(record, output)
    else:
        _print_sample(found, output)
    if output != "raw":
        for note in found.notes:
            echo(note, err=True)
        echo(found.headline, err=True)


@topics.command()
@source_options
@place_options
@choice_options
@click.option(
    "-n",
    "--last",
    type=click.IntRange(0),
    default=BEFORE,
    show_default=True,
    help="Begin with this number of existing records of each partition.",
)
@click.option("--limit", type=click.IntRange(1), help="End after this number of records.  [default: at Ctrl-C]")
def tail(output: str | None, limit: int | None, **options: Any) -> None:
    """Show a topic's last records, then new ones until Ctrl-C.

    Reads a TOPIC or a PIPELINE's topics. Decodes records as ``sample`` does. Changes nothing, and commits no offsets.
    """
    topic = _topic(options)
    try:
        for count, record in enumerate(topic.tail(**options), start=1):
            _print_record(record, output or "text")
            if count == limit:
                return
    except KeyboardInterrupt:
        return


@topics.command()
@source_options
@place_options
@click.option(
    "--records", type=click.IntRange(1), default=10_000, show_default=True, help="Number of newest records to read."
)
@output_option
def profile(**options: Any) -> None:
    """Profile a TOPIC: rate, sizes, keys, schema ids and fields.

    The rate counts all records, by the broker's time index. All other figures describe a sample of the records.
    """
    topic = _topic(options)
    found = topic.profile(**options)
    emit(found.as_dict(), _profile_lines(found))


def _topics(bootstrap_servers: str | None) -> Topics:
    from lakefeed.clients.kafka.topics import Topics

    return Topics(bootstrap_servers_of(bootstrap_servers), options=kafka_options())


def _topic(options: dict[str, Any]) -> Topic:
    """Return the topic that the options name, and remove those options from the dictionary."""
    from lakefeed_local.topics.topic import Topic

    source, decode, registry, servers, name, overrides = (
        options.pop(each) for each in ("source", "decode", "registry", "bootstrap_servers", "topic", "overrides")
    )
    if is_pipeline_file(source):
        refuse_options_of_topics(decode, registry, servers)
        return Topic.of_pipeline(lakefeed.Pipeline.from_file(source, overrides=overrides), topic=name)
    if overrides or name is not None:
        hint = "leave both out, or name a pipeline file instead of a topic"
        raise ConfigError("--set and --topic are only for a pipeline file", where=source, hint=hint)
    block = None if decode is None else decode_block_of(decode, registry)
    return Topic(source, bootstrap_servers=bootstrap_servers_of(servers), registry=registry, decode=block)


def _print_sample(found: TopicSample, output: str | None) -> None:
    columns, rows = found.cells()
    cells = [[_cell(text) for text in row] for row in [columns, *rows]]
    lines = aligned(cells, left=len(columns))
    width = shutil.get_terminal_size().columns
    if output is None and (sys.stdout.isatty() and max(map(len, lines)) > width):
        output = "text"
    if output == "text":
        for record in found.records:
            _print_record(record, "text")
    elif rows:
        for line in lines:
            echo(redacted(line))


def _print_record(record: ShownRecord, output: str) -> None:
    if output == "raw":
        value = (record.raw.value if record.raw else None) or b""
        if sys.stdout.isatty():  # Escape control characters, because a terminal would act on them.
            echo(printable(value.decode(errors="backslashreplace"), keep="\t"))
        else:
            sys.stdout.buffer.write(value + b"\n")
    elif output == "json":
        click.echo(printable_json(json.dumps(_redacted(record.as_dict()), default=str, ensure_ascii=False)))
    else:
        time = "no time" if record.timestamp is None else record.timestamp.isoformat(" ", "milliseconds")[:23]
        ids = "" if record.schema_id is None else f"  schema id {record.schema_id}"
        head = f"{record.topic}-{record.partition}  offset {record.offset}  {time}{ids}  {record.size:,} B"
        echo(styled(f"{head}  key {_text(record.key)}", fg="cyan"))
        for name, value in record.headers:
            echo(styled(f"  {_text(name)}: {_text(value)}", fg="blue"))
        if record.error is not None:
            echo(styled(f"  cannot be read: {redacted(record.error)}", fg="red"))
        if record.error is None or record.value is not None:
            echo(f"  {_text(record.value)}")
    sys.stdout.flush()


def _text(value: Any) -> str:
    text = redacted(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    cut = text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}… ({len(text):,} characters; --output json)"
    return printable(cut)


def _cell(text: str) -> str:
    line = printable(" ".join(redacted(text).split("\n")))
    return line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…"


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {name: _redacted(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(inner) for inner in value]
    return value


def _profile_lines(found: TopicProfile) -> Iterator[str]:
    yield found.headline
    if found.rates:
        # In a terminal, draw as many columns as fit beside the label.
        columns = max(8, shutil.get_terminal_size().columns - 14) if sys.stdout.isatty() else 1_000
        yield from _chart_lines(narrowed([rate.per_second for rate in found.rates], columns))
        first, last = found.rates[0].start, found.rates[-1].end
        yield f"  {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC"
    for name, text in found.facts():
        shown = redacted(text)
        yield f"{name:<15}{shown if len(shown) <= LONGEST_VALUE else f'{shown[:LONGEST_VALUE]}…'}"
    names, *rows = found.field_rows()
    if rows:
        yield ""
        yield from column_lines(
            [tuple(_cell(cell) for cell in row) for row in (names, *rows)], left=len(names), indent=0
        )


def narrowed(rates: Sequence[float], columns: int) -> list[float]:
    """Return at most ``columns`` rates; if there are more, each is the average of several neighbours."""
    wide = -(-len(rates) // columns)
    spans = [rates[at : at + wide] for at in range(0, len(rates), wide)]
    return [sum(span) / len(span) for span in spans]


def _chart_lines(rates: Sequence[float], *, height: int = 4) -> Iterator[str]:
    """Draw rates as a bar chart, labelled with the highest rate."""
    most = max(rates) or 1.0
    step = len(BARS) - 1
    for row in range(height - 1, -1, -1):
        levels = (round(rate / most * height * step) - row * step for rate in rates)
        bars = "".join(BARS[min(step, max(0, level))] for level in levels)
        label = f" {most:,.1f}/s" if row == height - 1 else " 0" if row == 0 else ""
        yield f"  {bars}{label}"
