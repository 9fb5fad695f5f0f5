"""``lakefeed topics sample``, ``tail`` and ``profile``: what is in a topic, decoded."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import lakefeed
from lakefeed.cli.options import (
    bootstrap_option,
    bootstrap_servers_of,
    decode_block_of,
    options_of,
    output_option,
    registry_option,
)
from lakefeed.cli.output import echo, echo_columns, emit
from lakefeed.errors import ConfigError
from lakefeed.messages.printable import aligned, printable, printable_json
from lakefeed.messages.redaction import redacted

if TYPE_CHECKING:
    from lakefeed.operations.topic_profile import TopicProfile
    from lakefeed.records.decode.shown_record import ShownRecord
    from lakefeed.topic import Topic, TopicSample

SAMPLED = 20
BEFORE = 10
WIDEST = 60
LONGEST_VALUE = 4_000
BARS = " ▁▂▃▄▅▆▇█"

source_options = options_of(
    click.argument("source", metavar="TOPIC|PIPELINE"),
    click.option(
        "--decode",
        metavar="FORMAT",
        help="avro, protobuf, json_schema, json, string, raw, or a block.  [default: each]",
    ),
    registry_option,
    bootstrap_option,
    click.option("--topic", help="For a PIPELINE with several topics: which."),
    click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="For a PIPELINE: override a setting."),
)
place_options = options_of(
    click.option(
        "--from", "start", metavar="PLACE", help="earliest, latest, a time (2026-11-20T06:30), or 15m, 2h, 7d."
    ),
    click.option("--partition", type=click.IntRange(0), help="This partition only."),
)
choice_options = options_of(
    click.option("--offset", type=int, help="Begin at this offset of the partition; -10 for its ten last offsets."),
    click.option("--key", help="Records with this key only."),
    click.option("--where", metavar="SQL", help='A condition: "fare > 100 AND kafka_partition = 3".'),
    click.option("--fields", metavar="SQL", help='Columns instead of the whole value: "fare, upper(zone) AS zone".'),
    click.option(
        "--output",
        type=click.Choice(["table", "text", "json", "raw"]),
        help="json: an object a line; raw: the values' bytes.  [default: table if it fits, else text]",
    ),
)


@click.command()
@source_options
@place_options
@choice_options
@click.option("-n", "--limit", type=click.IntRange(1), default=SAMPLED, show_default=True, help="Records at most.")
@click.option(
    "--scan", type=click.IntRange(1), default=10_000, show_default=True, help="Records looked at for --key and --where."
)
def sample(output: str | None, **options: Any) -> None:
    """Show some records of a TOPIC, or of a PIPELINE's topics: the newest, or the first ones from a place on.

    A record of a TOPIC is read with its writer's schema if the registry has one, else as JSON, text or bytes; those of
    a PIPELINE as its file says, and what would be a dead letter shows why. Nothing is changed, no offset committed.

    --where and --fields are Spark's SQL over the fields of the value, kafka_partition, kafka_offset, kafka_timestamp,
    kafka_key, kafka_headers, schema_id and error: --where "error IS NOT NULL" shows what cannot be read.
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


@click.command()
@source_options
@place_options
@choice_options
@click.option(
    "-n",
    "--last",
    type=click.IntRange(0),
    default=BEFORE,
    show_default=True,
    help="Records of each partition from before.",
)
@click.option("--limit", type=click.IntRange(1), help="End after so many.  [default: at Ctrl-C]")
def tail(output: str | None, limit: int | None, **options: Any) -> None:
    """Show the last records of a TOPIC, or of a PIPELINE's topics, and then each one that comes, until Ctrl-C.

    Records are read, and conditions written, as for ``sample``. Nothing is changed, no offset committed.
    """
    topic = _topic(options)
    try:
        for count, record in enumerate(topic.tail(**options), start=1):
            _print_record(record, output or "text")
            if count == limit:
                return
    except KeyboardInterrupt:
        return


@click.command()
@source_options
@place_options
@click.option(
    "--records", type=click.IntRange(1), default=10_000, show_default=True, help="Records to look at, the newest."
)
@output_option
def profile(**options: Any) -> None:
    """Profile a TOPIC: its rate, sizes, keys, schema ids, late records, and the fields of its values.

    The rate is of all records, by the broker's index of their times; everything else of those that were looked at.
    """
    topic = _topic(options)
    found = topic.profile(**options)
    emit(found.as_dict(), lambda: _print_profile(found))


def _topic(options: dict[str, Any]) -> Topic:
    """Return the topic that the options name, and take these out of the options."""
    source, decode, registry, servers, name, overrides = (
        options.pop(each) for each in ("source", "decode", "registry", "bootstrap_servers", "topic", "overrides")
    )
    if Path(source).suffix in (".yaml", ".yml"):
        for option, given in {"--decode": decode, "--registry": registry, "--bootstrap-servers": servers}.items():
            if given is not None:
                raise ConfigError(f"{option} is for a topic; the pipeline has it in its file", hint="--set KEY=VALUE")
        return lakefeed.Topic.of_pipeline(lakefeed.Pipeline.from_file(source, overrides=overrides), topic=name)
    if overrides or name is not None:
        raise ConfigError("--set and --topic are for a pipeline file", where=source)
    block = None if decode is None else decode_block_of(decode, registry)
    return lakefeed.Topic(source, bootstrap_servers=bootstrap_servers_of(servers), registry=registry, decode=block)


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
        _print_raw(record)
    elif output == "json":
        click.echo(printable_json(json.dumps(_redacted(record.as_dict()), default=str, ensure_ascii=False)))
    else:
        time = "no time" if record.timestamp is None else record.timestamp.isoformat(" ", "milliseconds")[:23]
        ids = "" if record.schema_id is None else f"  schema id {record.schema_id}"
        head = f"{record.topic}-{record.partition}  offset {record.offset}  {time}{ids}  {record.size:,} B"
        echo(f"{head}  key {_text(record.key)}", fg="cyan")
        for name, value in record.headers:
            echo(f"  {_text(name)}: {_text(value)}", fg="blue")
        if record.error is not None:
            echo(f"  cannot be read: {redacted(record.error)}", fg="red")
        if record.error is None or record.value is not None:
            echo(f"  {_text(record.value)}")
    sys.stdout.flush()


def _print_raw(record: ShownRecord) -> None:
    """Print the value's bytes and a line end; to a terminal without what would act on it."""
    value = (record.raw.value if record.raw else None) or b""
    if sys.stdout.isatty():
        echo(printable(value.decode(errors="backslashreplace"), keep="\t"))
        return
    sys.stdout.buffer.write(value + b"\n")


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


def _print_profile(found: TopicProfile) -> None:
    echo(found.headline)
    if found.rates:
        _print_chart(narrowed([rate.per_second for rate in found.rates], _chart_columns()))
        first, last = found.rates[0].start, found.rates[-1].end
        echo(f"  {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC")
    for name, text in found.facts():
        echo(f"{name:<15}{_cut(redacted(text))}")
    names, *rows = found.field_rows()
    if rows:
        echo()
        echo_columns([tuple(_cell(cell) for cell in row) for row in (names, *rows)], left=len(names), indent=0)


def _chart_columns() -> int:
    """Return how many columns of a chart fit beside its label; a file has no end of a line."""
    return max(8, shutil.get_terminal_size().columns - 14) if sys.stdout.isatty() else 1_000


def narrowed(rates: Sequence[float], columns: int) -> list[float]:
    """Return the rates of fewer, wider spans of time, so that they are as many as the columns at most."""
    wide = -(-len(rates) // columns)
    spans = [rates[at : at + wide] for at in range(0, len(rates), wide)]
    return [sum(span) / len(span) for span in spans]


def _print_chart(rates: Sequence[float], *, height: int = 4) -> None:
    """Draw a rate over time as columns, with the highest rate beside them."""
    most = max(rates) or 1.0
    step = len(BARS) - 1
    for row in range(height - 1, -1, -1):
        levels = (round(rate / most * height * step) - row * step for rate in rates)
        bars = "".join(BARS[min(step, max(0, level))] for level in levels)
        label = f" {most:,.1f}/s" if row == height - 1 else " 0" if row == 0 else ""
        echo(f"  {bars}{label}")


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
