"""``lakefeed feed rehearse``: compare a changed pipeline file with the file of a feed, on records of the feed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

import lakefeed
from lakefeed.cli.options import FILE, log_file_option, master_option, one_part_of, output_option, topic_option
from lakefeed.cli.output import column_lines, emit, figure, first_lines, say, styled
from lakefeed.clients.spark.session import log_path
from lakefeed.messages.printable import counted

if TYPE_CHECKING:
    from lakefeed_repair.rehearsal import Rehearsal

MOST_SHOWN, LONGEST_SETTING = 50, 100


@click.command()
@click.argument("new", metavar="NEW.yaml", type=FILE)
@click.option("--against", metavar="OLD.yaml", type=FILE, required=True, help="The file of the feed as it runs now.")
@click.option(
    "--last", metavar="AMOUNT", default="100000", show_default=True, help="200000 records, '5 batches', or 10m (time)."
)
@click.option("--allow", "allowed", metavar="COLUMN", multiple=True, help="A column that may differ; repeatable.")
@click.option(
    "--mask", "masked", metavar="COLUMN", multiple=True, help="Hide a column's values; '*' for all; repeatable."
)
@topic_option
@master_option
@log_file_option
@output_option
def rehearse(
    new: Path, against: Path, topic: str | None, master: str | None, log_file: Path | None, **choice: Any
) -> None:
    """Try a changed pipeline file on records that its feed has landed, and show each difference.

    Lands the feed's newest batches, as many as --last needs, once by OLD.yaml and once by NEW.yaml, in temporary tables
    beside the feed's table. Compares them by topic, partition and offset: columns, types, values, missing rows, dead
    letters with their reasons, partitions, rows per second and S3 requests.

    Changes no table, ledger, checkpoint or consumer group of the feed, which may run meanwhile. The temporary tables
    are removed at the end; if the command is killed, the next rehearsal removes them.

    Each difference begins with its name for --allow: a column, or @rows, @dead-letters, @partition_by, @sort_by.

    \b
    lakefeed feed rehearse new.yaml --against pipeline.yaml --last 200000
    lakefeed feed rehearse new.yaml --against pipeline.yaml --allow fare --allow @dead-letters

    Exit status: 0 if nothing differs but what --allow names; 1 if something else differs, or a server fails; 2 if the
    files cannot be compared.
    """
    from lakefeed_repair import rehearsal

    pipelines = [one_part_of(lakefeed.Pipeline.from_file(file, to_run=False), topic) for file in (new, against)]
    log_file = log_file or log_path(f"{pipelines[1].config.name}-rehearsal")
    say([f"starting; Spark's log is {log_file}"])
    spark = pipelines[0].session(master=master, log_file=log_file)
    done = rehearsal.rehearse(*pipelines, last=choice["last"], masked=choice["masked"], spark=spark)
    settings, refused = changed_settings(against, new), done.refused(choice["allowed"])
    emit({**done.as_dict(), "settings": settings, "refused": refused}, _lines(done, settings, refused))
    raise Exit(1 if refused else 0)


def changed_settings(old: Path, new: Path) -> dict[str, list[str | None]]:
    """Return the settings that differ, with variables unresolved, so that no secret is shown."""
    import yaml

    before, after = (dict(_flat(yaml.safe_load(file.read_text("utf-8")))) for file in (old, new))
    keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return {key: [before.get(key), after.get(key)] for key in keys}


def _flat(block: Any, place: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(block, Mapping) and block:
        for key, value in block.items():
            yield from _flat(value, f"{place}.{key}".lstrip("."))
    else:
        yield place, str(block)


def _lines(done: Rehearsal, settings: Mapping[str, list[str | None]], refused: list[str]) -> Iterator[str]:
    yield f"feed {done.feed}, {done.new['batches']} of {counted(done.batches, 'batch', 'batches')} compared:"
    yield from first_lines(done.ranges, most=MOST_SHOWN)
    names = ("records", "rows", "dead_letters", "skipped", "rows_per_second", "s3_requests")
    lines = [("", *(name.replace("_", " ") for name in names))]
    lines += [(title, *(figure(run[name]) for name in names)) for title, run in (("old", done.old), ("new", done.new))]
    yield from column_lines(lines, left=1)
    yield from (f"note: {note}" for note in done.notes)
    for key, values in list(settings.items())[:MOST_SHOWN]:
        before, after = (str(value)[:LONGEST_SETTING] for value in values)
        yield f"setting {key}: {before} → {after}"
    for found in done.differences:
        yield styled(f"{found.name}: ", bold=True) + found.what
        yield from (f"    {example}" for example in found.examples)
    if refused:
        yield styled(f"differs: {', '.join(refused)}", fg="red", bold=True)
    else:
        yield styled("only what is allowed differs" if done.differences else "nothing differs", fg="green", bold=True)
