"""``lakefeed tables``: shows the health of Iceberg tables, maintains them, and publishes branches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit
from pydantic import ValidationError

import lakefeed
from lakefeed.cli.options import (
    PIPELINE_FILE,
    dry_run_option,
    is_pipeline_file,
    log_file_option,
    master_option,
    options_of,
    output_option,
    parts_of,
    pipeline_argument,
    set_option,
    topic_option,
    yes_option,
)
from lakefeed.cli.output import emit, size_text, styled
from lakefeed.clients.environment import default_connections
from lakefeed.clients.spark.errors import translate, translating
from lakefeed.clients.spark.session import log_path, session
from lakefeed.clients.spark.signals import stop_on_signals
from lakefeed.errors import AuditFailed, ConfigError, LakefeedError, ResourceMissing

if TYPE_CHECKING:
    from lakefeed.config.connections import Connections
    from lakefeed_upkeep.actions import MaintenancePlan
    from lakefeed_upkeep.maintain import Report
    from lakefeed_upkeep.settings import Upkeep
    from lakefeed_upkeep.table_stats import Health

COLUMN = 16

chosen = options_of(
    click.argument("target", metavar="[PIPELINE|TABLE]", default=PIPELINE_FILE),
    topic_option,
    # These options override the pipeline's ``upkeep`` block.
    click.option("--only", metavar="STEPS", help="Only these steps of compact,manifests,expire,orphans."),
    click.option("--target-mb", type=click.IntRange(1), help="Size of the files to write."),
    click.option(
        "--expire-older-than", metavar="TIME", help="Expire only snapshots older than this, for example '7 days'."
    ),
    click.option("--keep", type=click.IntRange(10), help="Keep at least this number of snapshots."),
    click.option("--orphans-older-than", metavar="TIME", help="Remove only orphans older than this; at least 1 day."),
)


@click.group()
def tables() -> None:
    """Show the health of tables, maintain them, publish a branch."""


@tables.command()
@chosen
@output_option
def describe(target: str, topic: str | None, **options: Any) -> None:
    """Show health and due upkeep of TABLE or PIPELINE's tables.

    Reads only metadata, without Spark; changes nothing, and may run beside the feed.
    """
    names, connections, settings = _choose(target, topic, options)
    from lakefeed_upkeep.actions import plan
    from lakefeed_upkeep.table_stats import read_health

    target_bytes = settings.compact.target_mb * 1024 * 1024 if settings.compact.target_mb else None
    found = []
    for table in names:
        read = read_health(table, connections=connections, target_bytes=target_bytes)
        found.append((read, plan(read, settings, now=time.time())))

    def text() -> Iterator[str]:
        for read, planned in found:
            yield from _health_lines(read, planned, target)

    emit({"tables": [_document(read, planned) for read, planned in found]}, text())


@tables.command()
@chosen
@dry_run_option
@click.option(
    "--max-minutes", type=click.FloatRange(0, 10_080, min_open=True), help="Start no further step after this time."
)
@click.option("--wait", type=click.FloatRange(0), default=0.0, help="Seconds to wait for another upkeep of the table.")
@click.option("--measure-scan", is_flag=True, help="Measure how long a scan of all rows takes, before and after.")
@click.option("--every", metavar="TIME", help="Repeat at this interval, for example '1 hour', until SIGTERM or Ctrl-C.")
@master_option
@output_option
def maintain(
    target: str,
    topic: str | None,
    dry_run: bool,
    max_minutes: float | None,
    wait: float,
    measure_scan: bool,
    every: str | None,
    master: str | None,
    **options: Any,
) -> None:
    """Compact TABLE or PIPELINE's tables, and remove old files.

    Also rewrites manifests, expires snapshots and removes orphans. May run beside the feed: the feed's commits come
    first, and its ledger stays. SIGTERM, SIGHUP and Ctrl-C end the command after the current step, with status 0; a
    kill at any moment does no harm. If one of several tables fails, the others are still maintained.

    Exit status: 1 if other commits prevented a step every time, if another upkeep of the table runs, or if one of
    several tables failed; otherwise 0.
    """
    from lakefeed.monitor.terminal import ProgressView
    from lakefeed_upkeep.maintain import Maintenance
    from lakefeed_upkeep.schedule import repeat_upkeep

    names, connections, settings = _choose(target, topic, {**options, "max_minutes": max_minutes, "every": every})
    log_file = log_path("upkeep")
    reports: list[Report] = []
    failed: list[dict[str, Any]] = []
    with ProgressView("upkeep") as view:
        view.note(f"starting; Spark's log is {log_file}")
        spark = session("lakefeed-upkeep", connections=connections, master=master, log_file=log_file)
        with stop_on_signals(view.note) as stop:
            if every is not None:
                repeat_upkeep(
                    lambda: names,
                    spark=spark,
                    connections=connections,
                    settings=settings,
                    stop=stop,
                    report=lambda _table, outcome: _report_outcome(outcome),
                    say=view.note,
                )
                return
            for table in names:
                job = Maintenance(
                    table, spark=spark, connections=connections, settings=settings, stop=stop, say=view.note
                )
                try:
                    reports.append(job.run(dry_run=dry_run, measure_scan=measure_scan, wait=wait))
                except Exception as error:
                    failure = translate(error)
                    if len(names) == 1:
                        raise failure from error
                    failed.append({"table": table, **failure.as_dict()})
                    view.note(f"{table} failed: {failure}")
                if stop.is_set():
                    break

    def text() -> Iterator[str]:
        for report in reports:
            yield from _report_lines(report)

    emit({"tables": [report.as_dict() for report in reports], "failed": failed}, text())
    raise Exit(1 if failed or any(report.gave_up for report in reports) else 0)


@tables.command()
@pipeline_argument
@topic_option
@dry_run_option
@click.option(
    "--discard", is_flag=True, help="Publish nothing: drop the unpublished rows; the feed reads their records again."
)
@set_option
@yes_option
@master_option
@log_file_option
@output_option
def publish(
    pipeline: Path,
    topic: str | None,
    dry_run: bool,
    discard: bool,
    overrides: tuple[str, ...],
    yes: bool,
    master: str | None,
    log_file: Path | None,
) -> None:
    """Audit the branch that PIPELINE lands in, then publish it.

    If the rows meet publish.expect, readers see the audited snapshot from then on. Publishing is refused if another
    client has committed to the table itself. May run beside the feed. A second call changes nothing.

    With --discard the branch is reset to the table that readers see. This stops a running feed; its next start reads
    the records of the dropped rows again.

    Exit status: 1 if the audit of a table failed.
    """
    from lakefeed_upkeep.publish import discard_branch, publish_branch

    if discard and dry_run:
        raise click.UsageError("--discard and --dry-run exclude each other")
    declared = lakefeed.Pipeline.from_file(pipeline, overrides=overrides)
    parts = parts_of(declared, topic)
    names = ", ".join(part.config.sink.ledger_table for part in parts)
    if discard and not yes:
        click.confirm(f"Drop the unpublished rows of {names}, and stop the feed?", abort=True, err=True)
    spark = declared.session(master=master, log_file=log_file or log_path(f"{declared.config.name}-publish"))
    with translating():
        if discard:
            for part in parts:
                discard_branch(part.feed, spark)
            emit({"discarded": True}, f"{names}: lakefeed run reads the records again")
            return
        done = [publish_branch(part.feed, spark, dry_run=dry_run) for part in parts]
    lines = [styled(each.sentence, fg="red" if each.state == "failed" else None) for each in done]
    emit({"tables": [each.as_dict() for each in done]}, lines)
    if any(each.state == "failed" for each in done):
        raise Exit(AuditFailed.exit_status)


def _choose(target: str, topic: str | None, options: dict[str, Any]) -> tuple[list[str], Connections, Upkeep]:
    """Return the existing tables of a target, their connections and their upkeep settings.

    A feed creates a table only with its first record or dead letter, so tables may be missing. Only the table of a feed
    with a single table must exist.
    """
    from lakefeed_upkeep.settings import Upkeep

    if is_pipeline_file(target):
        declared = lakefeed.Pipeline.from_file(target, to_run=False)
        parts = parts_of(declared, topic)
        names = tuple(dict.fromkeys(table for part in parts for table in part.config.iceberg_tables()))
        if not names:
            hint = "name a table instead: catalog.namespace.table"
            raise ConfigError("the pipeline writes to no Iceberg table", where=target, hint=hint)
        connections, settings = declared.connections, declared.config.block(Upkeep) or Upkeep()
    elif topic is not None:
        hint = "give a pipeline file instead of the table, or leave out --topic"
        raise ConfigError("--topic is for a pipeline file", where=target, hint=hint)
    elif target.count(".") < 2:
        hint = "name an existing file, or one that ends in .yaml, .yml or .json; lakefeed init writes one"
        raise ConfigError(f"'{target}' is neither a pipeline file nor catalog.namespace.table", hint=hint)
    else:
        parts, names, connections, settings = [], (target,), default_connections(), Upkeep()
    settings = _tune(settings, options)
    found = []
    for table in names:
        try:
            lakefeed.open_table(table, connections=connections)
            found.append(table)
        except ResourceMissing:
            if table == names[0] and len(parts) < 2:
                raise
    return found, connections, settings


def _tune(settings: Upkeep, options: dict[str, Any]) -> Upkeep:
    steps = {"target_mb": "compact", "expire_older_than": "expire", "keep": "expire", "orphans_older_than": "orphans"}
    block = settings.model_dump()
    for option, value in options.items():
        if value is None:
            continue
        if step := steps.get(option):
            block[step][option.removeprefix(f"{step}_")] = value
        elif option == "only":
            block["only"] = [name.strip() for name in value.split(",")]
        else:
            block |= {"at": None, "every": value} if option == "every" else {option: value}
    try:
        return type(settings).model_validate(block)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(key) for key in first["loc"] if not isinstance(key, int))
        raise ConfigError(first["msg"].removeprefix("Value error, "), where=f"upkeep.{where}") from None


def _document(read: Health, planned: MaintenancePlan) -> dict[str, Any]:
    from lakefeed_upkeep.actions import LastUpkeep
    from lakefeed_upkeep.table_stats import SIZES_MB

    sizes = zip((*SIZES_MB, None), read.sizes, strict=True)
    return {
        "table": read.table,
        "location": read.location,
        **read.figures(),
        "records": read.records,
        "target_bytes": read.target_bytes,
        "sizes": [{"below_mb": bound, "files": files} for bound, files in sizes],
        "oldest_snapshot_at": read.ancestors[-1].at if read.ancestors else None,
        "growth_a_day": asdict(read.growth) if read.growth else None,
        "last_upkeep": asdict(LastUpkeep.of(read.properties)),
        "due": [{**asdict(step), "command": _command(read.table, step.step)} for step in planned.due],
    }


def _command(target: str, step: str) -> str:
    return f"lakefeed tables maintain {target} --only {step}"


def _health_lines(read: Health, planned: MaintenancePlan, target: str) -> Iterator[str]:
    from lakefeed_upkeep.actions import LastUpkeep
    from lakefeed_upkeep.table_stats import SIZES_MB

    def line(name: str, text: str) -> str:
        return f"  {name.ljust(COLUMN)}{text}"

    yield styled(read.table, bold=True)
    share = f", {read.small_files / read.files:.0%} below 3/4 of {read.target_bytes >> 20:,} MB" if read.files else ""
    yield line("files", f"{read.files:,} of {size_text(read.bytes)}, {read.records:,} rows{share}")
    if read.files:
        bounds = [*(f"<{bound} MB" for bound in SIZES_MB), f">={SIZES_MB[-1]} MB"]
        counts = zip(bounds, read.sizes, strict=True)
        yield line("sizes", "  ".join(f"{bound}: {count:,}" for bound, count in counts if count))
    yield line("partitions", f"{len(read.partitions):,}")
    if read.branches:
        yield line(
            "branches", f"{', '.join(read.branches)}, in which feeds land; only expire and orphans run beside them"
        )
    if read.delete_files:
        yield line("delete files", f"{read.delete_files:,}")
    yield line(
        "manifests", f"{read.manifests:,} of {size_text(read.manifest_bytes)}, read in {read.planning_seconds:.2f} s"
    )
    since = f", the oldest of {_time_text(read.ancestors[-1].at)}" if read.ancestors else ""
    yield line("snapshots", f"{read.snapshots:,}{since}")
    yield line("metadata.json", f"{size_text(read.metadata_bytes)}, {read.metadata_files:,} versions kept")
    if (growth := read.growth) is not None:
        yield line(
            "growth a day",
            f"{growth.rows:,.0f} rows, {size_text(growth.bytes)} in {growth.files:,.0f} files, {growth.commits:,.0f} "
            f"commits (from {growth.days:.3g} days)",
        )
    last = LastUpkeep.of(read.properties)
    yield line("last upkeep", "never" if last.at is None else _time_text(last.at))
    for step in planned.due:
        yield line("due", f"{step.why}\n{' ' * (COLUMN + 2)}{_command(target, step.step)}")
    if not planned.due:
        yield line("due", "nothing")


def _report_lines(report: Report) -> Iterator[str]:
    yield styled(report.table, bold=True)
    if report.dry_run:
        for step in report.due:
            yield f"  {step.step.ljust(10)} {step.why}"
        if any(step.step == "orphans" for step in report.due):
            yield f"  {'':10} {report.did.orphans:,} orphans of {size_text(report.did.orphan_bytes)}"
        if not report.due:
            yield "  nothing is due"
        return
    yield f"  {report.sentence}"
    names = ("files", "bytes", "delete_files", "manifests", "snapshots", "metadata_bytes", "planning_seconds")
    changes = {name: (report.before[name], report.after[name]) for name in names} if report.after is not None else {}
    if report.scan_seconds is not None:
        changes["scan_seconds"] = report.scan_seconds
    for name, (before, after) in changes.items():
        yield f"  {name.ljust(COLUMN + 2)}{before:>14,} -> {after:>14,}"


def _report_outcome(outcome: Report | LakefeedError) -> None:
    if isinstance(outcome, LakefeedError):
        emit(outcome.as_dict(), f"failed, and continues: {outcome}", indent=None)
    else:
        emit(outcome.as_dict(), f"{outcome.table}: {outcome.sentence}", indent=None)


def _time_text(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
