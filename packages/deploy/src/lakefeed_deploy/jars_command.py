"""``lakefeed jars``: fetches, lists and verifies the locked jars in the cache."""

from __future__ import annotations

import time
from collections import Counter

import click
from click.exceptions import Exit

from lakefeed.cli.group import CommandGroup
from lakefeed.cli.options import output_option
from lakefeed.cli.output import emit
from lakefeed.clients.spark import jars as locked

PAGE = "jars"

group_option = click.option(
    "--group", "groups", multiple=True, help="Only jars of this group; repeatable. Default: all but those of tests."
)


@click.group(cls=CommandGroup)
def jars() -> None:
    """Fetch and verify the locked jars.

    The jars are in LAKEFEED_CACHE (default ~/.cache/lakefeed); lakefeed checks their SHA-256 at each use.
    LAKEFEED_MAVEN_REPOSITORY names a mirror; LAKEFEED_MAVEN_USER and LAKEFEED_MAVEN_PASSWORD are its login.
    """


@jars.command()
@group_option
@output_option
def fetch(groups: tuple[str, ...]) -> None:
    """Fetch missing jars, so that later commands work offline."""
    begun = time.monotonic()
    paths = locked.fetch(groups or locked.read_lock().usual_groups)
    seconds = round(time.monotonic() - begun, 1)
    directory = locked.cache_directory()
    document = {"directory": str(directory), "files": len(paths), "seconds": seconds}
    emit(document, f"{len(paths)} files verified in {directory} ({seconds} s)")


@jars.command()
@output_option
def archive() -> None:
    """Make a class-data archive, which speeds up Spark's start.

    A start then takes a third less CPU. To make the archive, a small feed runs in a separate process, whose JVM writes
    the loaded classes. This takes a minute of CPU, and 150 to 250 MB in the cache. Sessions on a local master use the
    archive automatically until Java or the jars change.
    """
    from lakefeed_deploy.class_archive import make_archive

    made = make_archive()
    size = made.path.stat().st_size / 1e6
    emit(made.as_dict(), f"{made.path} ({size:,.0f} MB) made in {made.seconds} s; the next start uses it")


@jars.command("list")
@group_option
@output_option
def list_(groups: tuple[str, ...]) -> None:
    """List the lock's jars: coordinate, groups, size."""
    artifacts = _locked(groups)
    lines = [f"{jar.size / 1e6:8.2f} MB  {','.join(jar.groups):15} {jar.coordinate}" for jar in artifacts]
    keys = ("coordinate", "groups", "size", "sha256")
    document = [{**{key: getattr(jar, key) for key in keys}, "path": str(jar.path)} for jar in artifacts]
    emit(document, "\n".join(lines))


@jars.command()
@group_option
@output_option
def verify(groups: tuple[str, ...]) -> None:
    """Compare the cache with the lock, offline. Exit status 1 if a jar is missing or damaged."""
    states = {jar.coordinate: jar.state() for jar in _locked(groups)}
    wrong = {coordinate: state for coordinate, state in states.items() if state != "ok"}
    counts = Counter(states.values())
    lines = [f"{state:8} {coordinate}" for coordinate, state in wrong.items()]
    lines.append(", ".join(f"{counts[state]} {state}" for state in ("ok", "missing", "damaged")))
    if wrong:
        lines.append("fix with: lakefeed jars fetch")
    emit({"ok": len(states) - len(wrong), "wrong": wrong}, "\n".join(lines))
    raise Exit(1 if wrong else 0)


def _locked(groups: tuple[str, ...]) -> list[locked.Artifact]:
    lock = locked.read_lock()
    return lock.of(groups or lock.usual_groups)
