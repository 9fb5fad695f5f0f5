"""``lakefeed tables``: how Iceberg tables are, and their upkeep."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lakefeed.cli.output import echo, emit, output_option
from lakefeed.cli.topic import parts_of, topic_option

if TYPE_CHECKING:
    from lakefeed.config.connections import Connections
    from lakefeed.config.upkeep import Upkeep
    from lakefeed.errors import LakefeedError
    from lakefeed.maintenance.maintain import Report
    from lakefeed.maintenance.planner import MaintenancePlan
    from lakefeed.maintenance.table_stats import Health

F = TypeVar("F", bound=Callable[..., None])
Shown = TypeVar("Shown")

target_argument = click.argument("target", metavar="TABLE|PIPELINE")
COLUMN = 16


def tuning(command: F) -> F:
    """The options that say what is due; they win over the pipeline's ``upkeep`` block."""
    for option in (
        click.option("--orphans-older-than", metavar="TIME", help="Younger orphans stay; 1 day at least."),
        click.option("--keep", type=click.IntRange(10), help="So many snapshots stay in any case."),
        click.option("--expire-older-than", metavar="TIME", help="Younger snapshots stay: '7 days'."),
        click.option("--target-mb", type=click.IntRange(1), help="Size of the files to write."),
        click.option("--only", metavar="STEPS", help="These of compact,manifests,expire,orphans."),
    ):
        command = option(command)
    return command


@click.group()
def tables() -> None:
    """How Iceberg tables are, and their upkeep."""


@tables.command()
@target_argument
@topic_option
@tuning
@output_option
def describe(target: str, topic: str | None, output: str, **options: Any) -> None:
    """Show the health of TABLE, or of the tables of PIPELINE, and what is due.

    Reads metadata alone: starts no Spark, changes nothing, and may run beside the feed.
    """
    from lakefeed.maintenance.planner import plan
    from lakefeed.maintenance.table_stats import read_health

    chosen = _chosen(target, topic, options)
    found = []
    for table in chosen.present():
        read = read_health(table, connections=chosen.connections, target_bytes=chosen.target_bytes)
        found.append((read, plan(read, chosen.settings, now=time.time())))
    emit(
        output,
        {"tables": [_document(read, planned) for read, planned in found]},
        lambda: _each(lambda one: _print(*one, target), found),
    )


@tables.command()
@target_argument
@topic_option
@tuning
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--max-minutes", type=click.FloatRange(0, min_open=True), help="Begin no new piece of work after that.")
@click.option("--wait", type=click.FloatRange(0), default=0.0, help="Seconds to wait for another upkeep job's end.")
@click.option("--measure-scan", is_flag=True, help="Read all rows before and after, and say how long it took.")
@click.option("--every", metavar="TIME", help="Repeat for ever, every '1 hour'; until SIGTERM or Ctrl-C.")
@click.option("--master", help="Spark master.  [default: local[*]]")
@output_option
@click.pass_context
def maintain(
    context: click.Context,
    /,
    target: str,
    topic: str | None,
    dry_run: bool,
    max_minutes: float | None,
    wait: float,
    measure_scan: bool,
    every: str | None,
    master: str | None,
    output: str,
    **options: Any,
) -> None:
    """Look after TABLE, or the tables of PIPELINE: compact, rewrite manifests, expire snapshots, remove orphans.

    May run beside the feed: its commits come first, and what holds its ledger stays. SIGTERM, SIGHUP and
    Ctrl-C end after the current piece, with status 0; a kill at any moment does no harm.

    Of several tables each is looked after, whatever becomes of the others.

    Exit status: 0 done, or nothing due; 1 if something was left because others' commits came first each time, another
    upkeep job is at work, or one of several tables could not be looked after.
    """
    from lakefeed.clients.spark.errors import translated
    from lakefeed.clients.spark.session import log_path, session
    from lakefeed.clients.spark.signals import stop_on_signals
    from lakefeed.feed.maintenance import repeat_upkeep
    from lakefeed.feed.terminal import ProgressView
    from lakefeed.maintenance.maintain import Maintenance

    chosen = _chosen(target, topic, {**options, "max_minutes": max_minutes, "every": every})
    names = chosen.present()
    log_file = log_path("upkeep")
    reports: list[Report] = []
    failed: list[dict[str, Any]] = []
    with ProgressView("upkeep") as view:
        view.note(f"starting; Spark's log is {log_file}")
        spark = session("lakefeed-upkeep", connections=chosen.connections, master=master, log_file=log_file)
        with stop_on_signals(view.note) as stop:
            if every is not None:
                repeat_upkeep(
                    lambda: names,
                    spark=spark,
                    connections=chosen.connections,
                    settings=chosen.settings,
                    stop=stop,
                    report=lambda table, result: _tell(result, output),
                    say=view.note,
                )
                return
            for table in names:
                job = Maintenance(
                    table,
                    spark=spark,
                    connections=chosen.connections,
                    settings=chosen.settings,
                    stop=stop,
                    say=view.note,
                )
                try:
                    reports.append(job.run(dry_run=dry_run, measure_scan=measure_scan, wait=wait))
                except Exception as error:
                    failure = translated(error)
                    if len(names) == 1:
                        raise failure from error
                    failed.append({"table": table, **failure.as_dict()})
                    view.note(f"{table} failed: {failure}")
                if stop.is_set():
                    break
    document = {"tables": [each.as_dict() for each in reports], "failed": failed}
    emit(output, document, lambda: _each(_print_report, reports))
    context.exit(1 if failed or any(each.gave_up for each in reports) else 0)


@dataclass(frozen=True)
class _Chosen:
    """What a command is about."""

    tables: tuple[str, ...]
    connections: Connections
    settings: Upkeep
    requested: bool = True
    """Whether the first has to be there: not where each of many topics has tables of its own."""

    @property
    def target_bytes(self) -> int | None:
        target = self.settings.compact.target_mb
        return target * 1024 * 1024 if target else None

    def present(self) -> tuple[str, ...]:
        """The tables; a dead-letter table that no dead letter has made yet is left out, and a topic's without records.

        Raises:
            ResourceMissing: the first of them is not there.
        """
        from lakefeed.clients.iceberg.reader import open_table
        from lakefeed.errors import ResourceMissing

        found = []
        if self.requested:
            open_table(self.tables[0], connections=self.connections)
        for table in self.tables:
            try:
                open_table(table, connections=self.connections)
            except ResourceMissing:
                continue
            found.append(table)
        return tuple(found)


def _chosen(target: str, topic: str | None, options: dict[str, Any]) -> _Chosen:
    from lakefeed.clients.environment import default_connections
    from lakefeed.config.upkeep import Upkeep
    from lakefeed.errors import ConfigError
    from lakefeed.feed.maintenance import tables_of

    if target.endswith((".yaml", ".yml", ".json")) or Path(target).is_file():
        from lakefeed.pipeline import Pipeline

        declared = Pipeline.from_file(target)
        parts = parts_of(declared, topic)
        names = tables_of(*(each.config for each in parts))
        if not names:
            raise ConfigError("the pipeline writes to no Iceberg table", where=target)
        requested = len(parts) == 1
        return _Chosen(names, declared.connections, _tuned(declared.config.upkeep or Upkeep(), options), requested)
    if topic is not None:
        raise ConfigError("--topic is for a pipeline file", where=target)
    if target.count(".") < 2:
        raise ConfigError(f"'{target}' is neither a pipeline file nor catalog.namespace.table")
    return _Chosen((target,), default_connections(), _tuned(Upkeep(), options))


def _tuned(settings: Upkeep, options: dict[str, Any]) -> Upkeep:
    from pydantic import ValidationError

    from lakefeed.config.upkeep import Upkeep
    from lakefeed.errors import ConfigError

    block = settings.model_dump()
    for option, place in {
        "target_mb": ("compact", "target_mb"),
        "expire_older_than": ("expire", "older_than"),
        "keep": ("expire", "keep"),
        "orphans_older_than": ("orphans", "older_than"),
    }.items():
        if options.get(option) is not None:
            block[place[0]][place[1]] = options[option]
    if options.get("only") is not None:
        block["only"] = [each.strip() for each in options["only"].split(",")]
    if options.get("max_minutes") is not None:
        block["max_minutes"] = options["max_minutes"]
    if options.get("every") is not None:
        block |= {"every": options["every"], "at": None}
    try:
        return Upkeep.model_validate(block)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(each) for each in first["loc"] if not isinstance(each, int))
        raise ConfigError(first["msg"].removeprefix("Value error, "), where=f"upkeep.{where}") from None


def _document(read: Health, planned: MaintenancePlan) -> dict[str, Any]:
    from dataclasses import asdict

    from lakefeed.maintenance.planner import LastUpkeep
    from lakefeed.maintenance.table_stats import SIZES_MB

    growth = read.growth
    return {
        "table": read.table,
        "location": read.location,
        **read.figures(),
        "records": read.records,
        "target_bytes": read.target_bytes,
        "sizes": [
            {"below_mb": bound, "files": files} for bound, files in zip((*SIZES_MB, None), read.sizes, strict=True)
        ],
        "oldest_snapshot_at": read.ancestors[-1].at if read.ancestors else None,
        "growth_a_day": asdict(growth) if growth else None,
        "last_upkeep": asdict(LastUpkeep.of(read.properties)),
        "due": [{**asdict(each), "command": _command(read.table, each.step)} for each in planned.due],
    }


def _each(show: Callable[[Shown], None], items: Iterable[Shown]) -> None:
    for each in items:
        show(each)


def _command(target: str, step: str) -> str:
    return f"lakefeed tables maintain {target} --only {step}"


def _print(read: Health, planned: MaintenancePlan, target: str) -> None:
    from lakefeed.maintenance.planner import LastUpkeep
    from lakefeed.maintenance.table_stats import SIZES_MB

    echo(read.table, bold=True)

    def line(name: str, text: str) -> None:
        echo(f"  {name.ljust(COLUMN)}{text}")

    share = f", {read.small_files / read.files:.0%} below 3/4 of {read.target_bytes >> 20:,} MB" if read.files else ""
    line("files", f"{read.files:,} of {_size(read.bytes)}, {read.records:,} rows{share}")
    bounds = [*(f"<{bound} MB" for bound in SIZES_MB), f">={SIZES_MB[-1]} MB"]
    if read.files:
        line(
            "sizes", "  ".join(f"{bound}: {count:,}" for bound, count in zip(bounds, read.sizes, strict=True) if count)
        )
    line("partitions", f"{len(read.partitions):,}")
    if read.delete_files:
        line("delete files", f"{read.delete_files:,}")
    line("manifests", f"{read.manifests:,} of {_size(read.manifest_bytes)}, read in {read.planning_seconds:.2f} s")
    since = f", the oldest of {_when(read.ancestors[-1].at)}" if read.ancestors else ""
    line("snapshots", f"{read.snapshots:,}{since}")
    line("metadata.json", f"{_size(read.metadata_bytes)}, {read.metadata_files:,} versions kept")
    if (growth := read.growth) is not None:
        line(
            "growth a day",
            f"{growth.rows:,.0f} rows, {_size(growth.bytes)} in {growth.files:,.0f} files, {growth.commits:,.0f} "
            f"commits (from {growth.days:.3g} days)",
        )
    last = LastUpkeep.of(read.properties)
    line("last upkeep", "never" if last.at is None else _when(last.at))
    for each in planned.due:
        line("due", f"{each.why}\n{' ' * (COLUMN + 2)}{_command(target, each.step)}")
    if not planned.due:
        line("due", "nothing")


def _print_report(report: Report) -> None:
    echo(report.table, bold=True)
    if report.dry_run:
        for each in report.due:
            echo(f"  {each.step.ljust(10)} {each.why}")
        if any(each.step == "orphans" for each in report.due):
            echo(f"  {'':10} {report.did.orphans:,} orphans of {_size(report.did.orphan_bytes)}")
        if not report.due:
            echo("  nothing is due")
        return
    echo(f"  {report.sentence}")
    if report.after is not None:
        for name in ("files", "bytes", "delete_files", "manifests", "snapshots", "metadata_bytes", "planning_seconds"):
            echo(f"  {name.ljust(COLUMN + 2)}{report.before[name]:>14,} -> {report.after[name]:>14,}")
    if report.scan_seconds is not None:
        echo(f"  {'scan_seconds'.ljust(COLUMN + 2)}{report.scan_seconds[0]:>14,} -> {report.scan_seconds[1]:>14,}")


def _tell(failure: Report | LakefeedError, output: str) -> None:
    """One look of a job that runs forever: a line for people, or one JSON document a line."""
    from lakefeed.errors import LakefeedError

    if output == "json":
        echo(json.dumps(failure.as_dict(), default=str))
    elif isinstance(failure, LakefeedError):
        echo(f"failed, and continues: {failure}", err=True)
    else:
        echo(f"{failure.table}: {failure.sentence}")


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} B" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
