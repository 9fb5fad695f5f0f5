"""``lakefeed dead-letters``: records that could not become rows; look at them, land them after all, or drop them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lakefeed.cli.output import emit, output_option

if TYPE_CHECKING:
    from lakefeed.dead_letters.letters import Choice

F = TypeVar("F", bound=Callable[..., None])
SHOWN = 50
LONGEST_VALUE = 2_000

pipeline_argument = click.argument("pipeline", type=click.Path(path_type=Path, dir_okay=False))


def choosing(command: F) -> F:
    """The options that say which letters are meant."""
    for option in (
        click.option("--schema-id", type=int, help="Only those of this writer's schema."),
        click.option("--partition", type=click.IntRange(0), help="Only those of this partition."),
        click.option("--topic", help="Only those of this topic."),
        click.option("--reason", help="Only those whose reason contains this text."),
    ):
        command = option(command)
    return command


@click.group("dead-letters")
def dead_letters() -> None:
    """Records that could not become rows: look at them, land them after all, or drop them."""


@dead_letters.command("list")
@pipeline_argument
@choosing
@click.option("--limit", type=click.IntRange(1), default=SHOWN, show_default=True, help="Letters shown at most.")
@output_option
def list_(pipeline: Path, limit: int, output: str, **chosen: Any) -> None:
    """Show the dead letters of PIPELINE by reason, and one by one."""
    from lakefeed.dead_letters.letters import kinds, position_of
    from lakefeed.pipeline import Pipeline

    declared = Pipeline.from_file(pipeline)
    kept = declared.dead_letters()
    found = kept.find(_choice(declared.config.name, chosen))
    grouped = kinds(found)
    document = {
        kept.kind: kept.name,
        "count": len(found),
        "reasons": [asdict(each) for each in grouped],
        "dead_letters": found[:limit],
    }

    def text() -> None:
        click.echo(f"{kept.kind} {kept.name}: {len(found):,} dead letters of feed {declared.config.name}")
        for kind in grouped:
            click.echo(f"{kind.count:>10,}  {kind.reason}")
        if found:
            click.echo()
        for each in found[:limit]:
            click.echo(f"{position_of(each)}  {each['timestamp']:%Y-%m-%d %H:%M:%S}  {each['reason']}")
        if len(found) > limit:
            click.echo(f"… and {len(found) - limit:,} more; --limit shows them, --reason chooses")

    emit(output, document, text)


@dead_letters.command()
@pipeline_argument
@click.argument("position")
@click.option("--value-file", type=click.Path(path_type=Path, dir_okay=False), help="Write the value's bytes there.")
@output_option
def show(pipeline: Path, position: str, value_file: Path | None, output: str) -> None:
    """Show the dead letter of PIPELINE at POSITION, [TOPIC:]PARTITION:OFFSET, whole."""
    from lakefeed.dead_letters.letters import Choice, one
    from lakefeed.pipeline import Pipeline

    declared = Pipeline.from_file(pipeline)
    choice = Choice.at(declared.config.name, position)
    letter = one(declared.dead_letters(), choice)
    if value_file is not None:
        value_file.write_bytes(letter["value"] or b"")

    def text() -> None:
        for name in ("topic", "partition", "offset", "timestamp", "reason", "schema_id", "batch_id", "failed_at"):
            click.echo(f"{name:<10} {letter[name]}")
        click.echo(f"{'key':<10} {_bytes_text(letter['key'])}")
        for header in letter["headers"] or ():
            click.echo(f"{'header':<10} {header['key']} = {_bytes_text(header['value'])}")
        click.echo(f"{'value':<10} {_bytes_text(letter['value'])}")

    emit(output, _jsonable(letter), text)


@dead_letters.command()
@pipeline_argument
@choosing
@click.option("--master", help="Spark master.  [default: local[*]]")
@output_option
def replay(pipeline: Path, master: str | None, output: str, **chosen: Any) -> None:
    """Decode dead letters of PIPELINE with today's schema and policy; land those that can be rows now, each once.

    May run beside the feed. A replay that was cut off is ended by the next one.
    """
    from lakefeed.pipeline import Pipeline
    from lakefeed.session import log_path

    declared = Pipeline.from_file(pipeline)
    declared.dead_letters()  # Says at once if there are none.
    spark = declared.session(master=master, log_file=log_path(f"{declared.config.name}-replay"))
    done = declared.replay(_choice(declared.config.name, chosen), spark=spark)

    def text() -> None:
        click.echo(f"{done.rows:,} rows landed, {done.skipped:,} skipped by policy, {done.still_dead:,} still dead")
        if done.finished_earlier:
            click.echo(
                f"{done.finished_earlier:,} had been landed by a replay that was cut off; their letters are gone"
            )

    emit(output, asdict(done), text)


@dead_letters.command()
@pipeline_argument
@choosing
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--master", help="Spark master.  [default: local[*]]")
@output_option
def drop(pipeline: Path, yes: bool, master: str | None, output: str, **chosen: Any) -> None:
    """Delete dead letters of PIPELINE for good."""
    from lakefeed.pipeline import Pipeline
    from lakefeed.session import log_path

    declared = Pipeline.from_file(pipeline)
    choice = _choice(declared.config.name, chosen)
    count = len(declared.dead_letters().find(choice))
    if count and not yes:
        click.confirm(f"Delete {count:,} dead letters of feed {declared.config.name}?", abort=True, err=True)
    dropped = 0
    if count:
        spark = declared.session(master=master, log_file=log_path(f"{declared.config.name}-drop"))
        dropped = declared.dead_letter_place(spark).drop(choice)
    emit(output, {"dropped": dropped}, lambda: click.echo(f"{dropped:,} dead letters dropped"))


def _choice(feed: str, chosen: dict[str, Any]) -> Choice:
    from lakefeed.dead_letters.letters import Choice

    return Choice(feed=feed, **chosen)


def _bytes_text(content: bytes | None) -> str:
    if content is None:
        return "null"
    shown = content[:LONGEST_VALUE]
    more = f" … ({len(content):,} bytes in all; --value-file writes them)" if len(content) > LONGEST_VALUE else ""
    try:
        text = shown.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{shown.hex()}{more}"
    return f"{json.dumps(text, ensure_ascii=False) if not text.isprintable() else text}{more}"


def _jsonable(letter: dict[str, Any]) -> dict[str, Any]:
    """Bytes as base64, in fields that say so."""

    def encoded(content: bytes | None) -> str | None:
        return None if content is None else base64.b64encode(content).decode("ascii")

    plain = {name: value for name, value in letter.items() if name not in ("key", "value", "headers")}
    return {
        **plain,
        "key_base64": encoded(letter["key"]),
        "value_base64": encoded(letter["value"]),
        "headers": [{"key": each["key"], "value_base64": encoded(each["value"])} for each in letter["headers"] or ()],
    }
