"""``lakefeed local``: start, stop and show the servers of the local stack; examine this machine."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click
from click.exceptions import Exit

from lakefeed.cli.options import FOLDER, CommandGroup, F, output_option
from lakefeed.cli.output import echo, emit, styled
from lakefeed_local.part import Progress, StartStep
from lakefeed_local.servers import DEFAULT_STORE, STORES
from lakefeed_local.stack import Endpoints, Stack

COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}
home_option = click.option(
    "--home", type=FOLDER, help="Directory of the stack.  [default: LAKEFEED_HOME, or ~/.local/share/lakefeed]"
)


@click.group(cls=CommandGroup)
def local() -> None:
    """Run Kafka, a registry, an S3 store and a catalog locally.

    The embedded stack: real servers, without containers or root, reachable from this machine only.
    """


def _port_option(name: str) -> Callable[[F], F]:
    port = click.IntRange(1, 65535)
    return click.option(f"--port-{name}", type=port, help=f"Port for {name}.  [default: the last one, else a free one]")


@local.command()
@home_option
@click.option(
    "--store",
    type=click.Choice(list(STORES)),
    help=f"Object store; all but {DEFAULT_STORE} are built with Go.  [default: that of the home, else {DEFAULT_STORE}]",
)
@_port_option("kafka")
@_port_option("registry")
@_port_option("store")
@output_option
def up(home: Path | None, store: str | None, **port_options: int | None) -> None:
    """Start the stack, and wait until all servers answer. Running servers stay; data and ports are reused."""
    ports = {name.removeprefix("port_"): port for name, port in port_options.items() if port is not None}
    with shown_steps() as progress:
        endpoints = Stack(home, store=store, ports=ports).up(progress=progress)
    again = f" --home {shlex.quote(str(home))}" if home else ""
    text = (
        f"Kafka            {endpoints.bootstrap_servers}\n"
        f"Schema Registry  {endpoints.schema_registry_url}\n"
        f"S3               {endpoints.s3_endpoint}  bucket {endpoints.bucket}\n"
        f"Iceberg catalog  {endpoints.catalog_uri}  warehouse {endpoints.warehouse}\n"
        f'\nfor other clients:  eval "$(lakefeed local env{again})"'
    )
    document = endpoints.as_environment()
    del document["AWS_SECRET_ACCESS_KEY"]
    emit(document, text)


@local.command()
@home_option
@click.option("--erase", is_flag=True, help="Also delete topics, schemas, objects and tables.")
@output_option
def down(home: Path | None, erase: bool) -> None:
    """Stop the stack. Its data stay for the next `up`, unless --erase is given."""
    stack = Stack(home)
    with shown_steps() as progress:
        stack.down(erase=erase, progress=progress)
    root = stack.home.root
    kept = f"data removed from {root}" if erase else f"data kept in {root}"
    emit({"home": str(root), "erased": erase}, f"down; {kept}")


@local.command()
@home_option
@output_option
def status(home: Path | None) -> None:
    """Show the state of all servers. Exit status 1 unless all are up."""
    stack = Stack(home)
    parts = stack.status()
    healthy = bool(parts) and all(part.state == "up" for part in parts)

    def text() -> Iterator[str]:
        for part in parts:
            color = {"up": "green", "down": "yellow"}.get(part.state, "red")
            where = f" {part.address or '-':22} pid {part.pid or '-':<8} {part.log}"
            yield styled(f"{part.part:10} ") + styled(f"{part.state:14}", fg=color) + where
            if part.detail:
                yield f"{'':10} {part.detail}"
        if not parts:
            yield f"there is no local stack in {stack.home.root}"
        if not healthy:
            yield "start it with: lakefeed local up"

    document = {"up": healthy, "home": str(stack.home.root), "parts": [asdict(part) for part in parts]}
    emit(document, text())
    raise Exit(0 if healthy else 1)


@local.command()
@home_option
@output_option
def env(home: Path | None) -> None:
    """Print the endpoints as shell variables. They include the S3 secret: eval "$(lakefeed local env)"."""
    variables = Stack(home).endpoints().as_environment()
    emit(variables, "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items()))


@local.command()
@output_option
def doctor() -> None:
    """Check whether this machine can run lakefeed.

    Checks Java, Python, versions, jars, memory, disk, ports, clock and store; status 1 if a run cannot work, else 0.
    """
    from lakefeed_local.doctor import examine

    findings = examine()

    def text() -> Iterator[str]:
        for finding in findings:
            yield styled(f"{finding.verdict:<8}", fg=COLOURS[finding.verdict]) + f"{finding.name:<16} {finding.what}"
            if finding.hint:
                yield f"{'next:':>24} {finding.hint}"

    emit({"findings": [asdict(finding) for finding in findings]}, text())
    raise Exit(1 if any(finding.verdict == "error" for finding in findings) else 0)


@contextmanager
def fresh_stack(home: Path, *, store: str | None, keep: bool = False) -> Iterator[Endpoints]:
    """Start a stack without old data; stop it when the block ends, and keep its new data."""
    Stack(home).down(erase=True)
    stack = Stack(home, store=store)
    with shown_steps() as progress:
        endpoints = stack.up(progress=progress)
    try:
        yield endpoints
    finally:
        if not keep:
            stack.down()


@contextmanager
def shown_steps() -> Iterator[Progress]:
    """Show the start of the servers: in a terminal as one changing line, elsewhere as one line per step."""
    if not sys.stderr.isatty():
        yield lambda step: echo(_line(step), err=True)
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    waiting: dict[str, None] = {}
    with console.status("") as spinner:
        spinner.stop()

        def show(step: StartStep) -> None:
            if step.state in ("starting", "building"):
                waiting[step.part] = None
            else:
                waiting.pop(step.part, None)
                console.print(_line(step), markup=False)
            if waiting:
                spinner.update(f"waiting for {', '.join(waiting)} …")
                spinner.start()
            else:
                spinner.stop()

        yield show


def _line(step: StartStep) -> str:
    seconds = f"  ({step.seconds:.1f} s)" if step.seconds else ""
    return f"{step.part:10} {step.state:11} {step.detail}{seconds}".rstrip()
