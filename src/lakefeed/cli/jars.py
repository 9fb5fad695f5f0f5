"""``lakefeed jars``: the locked jars in the cache."""

from __future__ import annotations

import time
from collections import Counter

import click

from lakefeed.cli.output import echo, emit, output_option
from lakefeed.clients.spark import jars as locked

group_option = click.option(
    "--group", "groups", multiple=True, help="Only this group; may be given again. Default: all but those of tests."
)


@click.group()
def jars() -> None:
    """Fetch and verify the locked jars.

    They are kept in LAKEFEED_CACHE (default ~/.cache/lakefeed) and checked by SHA-256 at each use.
    LAKEFEED_MAVEN_REPOSITORY names a mirror; LAKEFEED_MAVEN_USER and LAKEFEED_MAVEN_PASSWORD its credentials.
    """


@jars.command()
@group_option
@output_option
def fetch(groups: tuple[str, ...], output: str) -> None:
    """Fetch what is missing, so that everything later works offline."""
    begun = time.monotonic()
    paths = locked.fetch(groups or locked.read_lock().usual_groups)
    seconds = round(time.monotonic() - begun, 1)
    document = {"directory": str(locked.cache_directory()), "files": len(paths), "seconds": seconds}
    emit(
        output,
        document,
        lambda: echo(f"{len(paths)} files verified in {locked.cache_directory()} ({seconds} s)"),
    )


@jars.command("list")
@group_option
@output_option
def list_(groups: tuple[str, ...], output: str) -> None:
    """List the locked jars: coordinate, groups, size. Reads nothing but the lock."""
    lock = locked.read_lock()
    artifacts = lock.of(groups or lock.usual_groups)

    def text() -> None:
        for artifact in artifacts:
            echo(f"{artifact.size / 1e6:8.2f} MB  {','.join(artifact.groups):15} {artifact.coordinate}")

    document = [
        {
            "coordinate": artifact.coordinate,
            "groups": artifact.groups,
            "size": artifact.size,
            "sha256": artifact.sha256,
            "path": str(artifact.path),
        }
        for artifact in artifacts
    ]
    emit(output, document, text)


@jars.command()
@group_option
@output_option
@click.pass_context
def verify(context: click.Context, groups: tuple[str, ...], output: str) -> None:
    """Compare the cache with the lock, without the network. Exit status 1 if a jar is missing or damaged."""
    lock = locked.read_lock()
    states = {artifact.coordinate: artifact.state() for artifact in lock.of(groups or lock.usual_groups)}
    wrong = {coordinate: state for coordinate, state in states.items() if state != "ok"}

    def text() -> None:
        for coordinate, state in wrong.items():
            echo(f"{state:8} {coordinate}")
        counts = Counter(states.values())
        echo(", ".join(f"{counts[state]} {state}" for state in ("ok", "missing", "damaged")))
        if wrong:
            echo("fix with: lakefeed jars fetch")

    emit(output, {"ok": len(states) - len(wrong), "wrong": wrong}, text)
    if wrong:
        context.exit(1)
