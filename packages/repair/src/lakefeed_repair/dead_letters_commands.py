"""``lakefeed dead-letters``: shows, replays or drops records that could not become rows."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import lakefeed
from lakefeed.cli.options import (
    FILE,
    master_option,
    one_part_of,
    options_of,
    output_option,
    parts_of,
    pipeline_argument,
    set_option,
    yes_option,
)
from lakefeed.cli.output import emit
from lakefeed.clients.spark.session import log_path
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.messages.printable import counted, printable

if TYPE_CHECKING:
    from lakefeed.sinks.dead_letters.store import DeadLetterFilter, DeadLetterReader

PAGE = "dead-letters"

SHOWN = 50
LONGEST_VALUE = 2_000

Letters = list[dict[str, Any]]

choosing = options_of(
    pipeline_argument,
    set_option,
    click.option("--reason", help="Only letters whose reason contains this text, as 'list' prints it."),
    click.option("--topic", help="Only letters of this topic."),
    click.option("--partition", type=click.IntRange(0), help="Only letters of this partition."),
    click.option("--schema-id", type=int, help="Only letters whose writer's schema has this id."),
)


@click.group("dead-letters")
def dead_letters() -> None:
    """Show, replay or drop records that could not become rows."""


@dead_letters.command("list")
@choosing
@click.option(
    "--limit", type=click.IntRange(1), default=SHOWN, show_default=True, help="Largest number of letters to show."
)
@output_option
def list_(pipeline: Path, overrides: tuple[str, ...], limit: int, **chosen: Any) -> None:
    """Show PIPELINE's dead letters, counted by reason and listed."""
    from lakefeed.sinks.dead_letters.store import kinds

    declared = lakefeed.Pipeline.from_file(pipeline, overrides=overrides, to_run=False)
    many = declared.config.has_many_tables and chosen["topic"] is None
    documents = []
    for part, letters in _find(declared, chosen):
        if letters or not many:
            reader, reasons = part.feed.dead_letters(), [asdict(kind) for kind in kinds(letters)]
            counts = {"feed": part.config.name, "count": len(letters), "reasons": reasons}
            documents.append({reader.kind: reader.name, **counts, "dead_letters": letters[:limit]})

    def text() -> Iterator[str]:
        for document in documents:
            yield from _letters_lines(document)
        if not documents:
            yield "none of the tables has dead letters"

    emit({"tables": documents} if many else documents[0], text())


@dead_letters.command()
@click.argument("position")
@pipeline_argument
@click.option("--value-file", type=FILE, help="Write the value's bytes into this file.")
@click.option("--topic", help="The letter's topic, if POSITION does not name it.")
@set_option
@output_option
def show(position: str, pipeline: Path, value_file: Path | None, topic: str | None, overrides: tuple[str, ...]) -> None:
    """Show one letter in full. POSITION is [TOPIC:]PARTITION:OFFSET."""
    from lakefeed.sinks.dead_letters.store import DeadLetterFilter

    declared = lakefeed.Pipeline.from_file(pipeline, overrides=overrides, to_run=False)
    choice = DeadLetterFilter.at(declared.config.name, position)
    choice = replace(choice, topic=topic or choice.topic)
    if declared.config.has_many_tables:
        declared = one_part_of(declared, choice.topic)
        choice = replace(choice, feed=declared.config.name)
    letter = _find_one(declared.feed.dead_letters(), choice)
    if value_file is not None:
        value_file.write_bytes(letter["value"] or b"")

    def text() -> Iterator[str]:
        for name in ("topic", "partition", "offset", "timestamp", "reason", "schema_id", "batch_id", "failed_at"):
            yield f"{name:<10} {printable(str(letter[name]))}"
        yield f"{'key':<10} {_bytes_text(letter['key'])}"
        for header in letter["headers"] or ():
            yield f"{'header':<10} {printable(_cut(header['key']))} = {_bytes_text(header['value'])}"
        yield f"{'value':<10} {_bytes_text(letter['value'])}"

    emit(_jsonable(letter), text())


@dead_letters.command()
@choosing
@master_option
@output_option
def replay(pipeline: Path, overrides: tuple[str, ...], master: str | None, **chosen: Any) -> None:
    """Land the dead letters of PIPELINE that can become rows now.

    Decodes with the current schema and pipeline file, and lands each letter once. May run beside the feed; completes an
    interrupted replay.
    """
    from lakefeed_repair.replay import replay as land

    declared = lakefeed.Pipeline.from_file(pipeline, overrides=overrides, to_run=False)
    many = declared.config.has_many_tables and chosen["topic"] is None
    if many:
        # Without letters, there is no interrupted replay: a replay deletes its letters last.
        parts = [part for part, letters in _find(declared, chosen) if letters]
    else:
        parts = _parts(declared, chosen)
        parts[0].feed.dead_letters()  # Raise an error before Spark starts if the pipeline keeps no dead letters.
    spark = declared.session(master=master, log_file=log_path(f"{declared.config.name}-replay")) if parts else None
    done = [(part.config.name, land(part, _filter(part, chosen), spark=spark)) for part in parts]

    def text() -> Iterator[str]:
        for feed, result in done:
            of = f"{feed}: " if many else ""
            skipped = f"{result.skipped:,} skipped by policy"
            yield f"{of}{result.rows:,} rows landed, {skipped}, {result.still_dead:,} still dead"
            if earlier := result.finished_earlier:
                yield f"{of}{earlier:,} letters that an interrupted replay had landed are deleted"
        if not done:
            yield "none of the tables has dead letters"

    documents = [{"feed": feed, **asdict(result)} for feed, result in done]
    emit({"tables": documents} if many else documents[0], text())


@dead_letters.command()
@choosing
@yes_option
@master_option
@output_option
def drop(pipeline: Path, overrides: tuple[str, ...], yes: bool, master: str | None, **chosen: Any) -> None:
    """Delete dead letters of PIPELINE for good."""
    declared = lakefeed.Pipeline.from_file(pipeline, overrides=overrides, to_run=False)
    found = [(part, len(letters)) for part, letters in _find(declared, chosen) if letters]
    count = sum(letters for _, letters in found)
    if count and not yes:
        click.confirm(f"Delete {counted(count, 'dead letter')} of feed {declared.config.name}?", abort=True, err=True)
    dropped = 0
    if count:
        spark = declared.session(master=master, log_file=log_path(f"{declared.config.name}-drop"))
        dropped = sum(part.feed.dead_letter_store(spark).drop(_filter(part, chosen)) for part, _ in found)
    emit({"dropped": dropped}, f"{counted(dropped, 'dead letter')} dropped")


def _find(declared: lakefeed.Pipeline, chosen: dict[str, Any]) -> list[tuple[lakefeed.Pipeline, Letters]]:
    """Return the chosen letters by table; with a table per topic, a missing table counts as empty."""
    found = []
    for part in _parts(declared, chosen):
        try:
            letters = part.feed.dead_letters().find(_filter(part, chosen))
        except ResourceMissing:
            if not declared.config.has_many_tables:
                raise
            letters = []
        found.append((part, letters))
    return found


def _parts(declared: lakefeed.Pipeline, chosen: dict[str, Any]) -> list[lakefeed.Pipeline]:
    return parts_of(declared, chosen["topic"] if declared.config.has_many_tables else None)


def _filter(part: lakefeed.Pipeline, chosen: dict[str, Any]) -> DeadLetterFilter:
    from lakefeed.sinks.dead_letters.store import DeadLetterFilter

    return DeadLetterFilter(feed=part.config.name, **chosen)


def _letters_lines(document: dict[str, Any]) -> Iterator[str]:
    from lakefeed.sinks.dead_letters.store import position_of

    (kind, name), *_ = document.items()
    yield f"{kind} {name}: {counted(document['count'], 'dead letter')} of feed {document['feed']}"
    for alike in document["reasons"]:
        yield f"{alike['count']:>10,}  {printable(alike['reason'])}"
    if shown := document["dead_letters"]:
        yield ""
    for letter in shown:
        yield f"{position_of(letter)}  {_time_text(letter['timestamp'])}  {printable(letter['reason'])}"
    if document["count"] > len(shown):
        yield f"… and {document['count'] - len(shown):,} more; --limit shows them, --reason chooses"


def _time_text(time: datetime | str | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}" if isinstance(time, datetime) else time or "no timestamp"


def _bytes_text(content: bytes | None) -> str:
    if content is None:
        return "null"
    shown, is_whole = content[:LONGEST_VALUE], len(content) <= LONGEST_VALUE
    more = "" if is_whole else f" … ({len(content):,} bytes in all; --value-file writes them)"
    try:
        # Accept an incomplete character at the end: shortening the value may have split it.
        text = codecs.getincrementaldecoder("utf-8")().decode(shown, final=is_whole)
    except UnicodeDecodeError:
        return f"0x{shown.hex()}{more}"
    return f"{printable(text)}{more}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]} … ({len(text):,} characters in all)"


def _jsonable(letter: dict[str, Any]) -> dict[str, Any]:
    """Return a letter for JSON, with bytes as base64 in fields named …_base64."""

    def encoded(content: bytes | None) -> str | None:
        return None if content is None else base64.b64encode(content).decode("ascii")

    plain = {name: value for name, value in letter.items() if name not in ("key", "value", "headers")}
    headers = letter["headers"] or ()
    return {
        **plain,
        "key_base64": encoded(letter["key"]),
        "value_base64": encoded(letter["value"]),
        "headers": [{"key": header["key"], "value_base64": encoded(header["value"])} for header in headers],
    }


def _find_one(reader: DeadLetterReader, choice: DeadLetterFilter) -> dict[str, Any]:
    """Return the only letter of a record, with key, value and headers; raise an error for no letter or several."""
    letters = reader.find(choice, whole=True)
    if not letters:
        raise ResourceMissing(
            f"feed '{choice.feed}' has no dead letter at partition {choice.partition}, offset {choice.offset}",
            where=f"{reader.kind} {reader.name}",
            hint="lakefeed dead-letters list shows the existing letters",
        )
    topics = sorted({letter["topic"] for letter in letters})
    if len(topics) > 1:
        what, hint = "several topics have a dead letter at this position", "write TOPIC:PARTITION:OFFSET"
        raise ConfigError(what, where=", ".join(topics), hint=hint)
    return letters[0]
