"""A driver on a local disk is killed when a given file appears; after a restart, each record has landed once.

No S3 store is configured: tables, dead letters, ledger and checkpoint are in one folder.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from lakefeed_local.stack import Endpoints
from tests.support.cli import Running, lakefeed
from tests.support.faults.disk_watch import DiskWatch
from tests.support.faults.drivers import SHORT_LIVED
from tests.support.faults.kill_points import ICEBERG, LEDGER_ALONE, PARQUET, Place, pattern_of
from tests.support.faults.landed import Landing, SinkKind, assert_all_landed, assert_nothing_wrong
from tests.support.faults.workload import PARTITIONS, Workload
from tests.support.feed import Feed

JOURNAL = "/catalog[.]db-journal$"
"""SQLite has this file during a transaction, here that of the commit."""


@pytest.fixture
def on_disk(stack: Endpoints, tmp_path: Path) -> Feed:
    """Return a feed whose tables and checkpoint are in a folder with a name that URLs must escape."""
    return Feed(stack, tmp_path, disk=tmp_path / "lake of ärger")


def begun(landing: Landing) -> str:
    """Return a pattern of the first file of a batch: offsets entry 1, or the first metadata file."""
    if landing.has_checkpoint:
        return f"/checkpoints/{landing.feed.name}/offsets/1$"
    return pattern_of("table metadata", landing)


def cases() -> list[object]:
    """Return the cases; all are slow but the kill during the swap in the catalog."""
    found: list[object] = [pytest.param("iceberg", "journal", False, id="iceberg alone: journal")]
    kinds: list[tuple[SinkKind, tuple[Place, ...], bool]] = [
        ("iceberg", ICEBERG, True),
        ("iceberg", LEDGER_ALONE, False),
        ("parquet", PARQUET, True),
    ]
    for sink, places, has_checkpoint in kinds:
        for place in places:
            name = f"{sink}{'' if has_checkpoint else ' alone'}: {place}"
            found.append(pytest.param(sink, place, has_checkpoint, id=name, marks=pytest.mark.slow))
    return found


@contextmanager
def reader_of(catalog: Path) -> Iterator[Callable[[], None]]:
    """Yield a function that opens a read of the SQLite catalog, so that a commit waits with its journal on disk."""
    with ExitStack() as opened:

        def read() -> None:
            reader = opened.enter_context(closing(sqlite3.connect(catalog, timeout=60, check_same_thread=False)))
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()

        yield read


def send_first(work: Workload) -> None:
    work.feed.create_topic(partitions=PARTITIONS)
    work.send(90)
    work.transaction(60, end="abort")
    work.transaction(60, end="commit")
    work.send(90)


@pytest.mark.parametrize(("sink", "place", "has_checkpoint"), cases())
def test_each_record_lands_once_after_the_feed_was_killed_when_a_file_appeared(
    on_disk: Feed, sink: SinkKind, place: Place | str, has_checkpoint: bool
) -> None:
    landing = Landing(on_disk, sink, has_checkpoint=has_checkpoint)
    work = Workload(on_disk)
    send_first(work)
    file = landing.write_file()
    victim = Running(["run", file, "--once"], {**on_disk.environment, **SHORT_LIVED}, on_disk.folder / "killed.log")
    last = [JOURNAL] if place == "journal" else []
    if place not in ("offsets entry", "journal"):
        last = [pattern_of(place, landing)]  # type: ignore[arg-type]
    assert on_disk.disk is not None
    with reader_of(on_disk.disk / "warehouse" / "catalog.db") as read:
        hold = {"begun": read} if place == "journal" else {}
        watch = DiskWatch(on_disk.disk, [begun(landing), *last], victim.kill, **hold)
        watch.start()
        try:
            assert victim.process.wait(500) < 0, victim.said()
        finally:
            watch.close()
    assert watch.seen is not None
    assert_nothing_wrong(landing, work)

    work.send(30)
    lakefeed("run", file, "--once", environment={**on_disk.environment, **SHORT_LIVED})
    assert_all_landed(landing, work)
    assert not list(on_disk.disk.rglob("*.crc"))
