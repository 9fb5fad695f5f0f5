"""The first run writes an archive of its classes, and the next run uses it; a damaged archive does no harm."""

import json
import time
from pathlib import Path

import pytest

from lakefeed.clients.spark.class_archive import VARIABLE
from lakefeed.clients.spark.jars import cache_directory
from tests.support.cli import lakefeed
from tests.support.feed import Feed

MOST_SECONDS = 600


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a new cache for the commands of the test; the jars are those of the real cache."""
    monkeypatch.setenv("LAKEFEED_JARS", str(cache_directory() / "jars"))
    monkeypatch.setenv("LAKEFEED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(VARIABLE, "")
    return tmp_path / "cache"


def mapped_classes(feed: Feed, first_id: int) -> int:
    """Land ten records with the command ``run``; return how many Iceberg classes its JVM loaded from an archive."""
    feed.send(feed.avro({"id": each, "zone": "A"} for each in range(first_id, first_id + 10)))
    loaded = feed.folder / "loaded.txt"
    logged = {"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={loaded}"}
    done = lakefeed("run", feed.write_file(spark=logged), "--once", "--output", "json", environment=feed.environment)
    assert json.loads(done.stdout)["rows"] == 10
    assert "archive" not in done.stderr
    return sum(
        "org.apache.iceberg" in line and "shared objects file" in line for line in loaded.read_text().splitlines()
    )


def test_the_next_run_loads_classes_from_the_archive_of_the_first_run(feed: Feed, cache: Path) -> None:
    feed.create_topic(partitions=1)
    assert mapped_classes(feed, 0) == 0
    until = time.monotonic() + MOST_SECONDS
    while not (found := [*(cache / "classes").glob("*.jsa")]):
        assert time.monotonic() < until, [*(cache / "classes").iterdir()]
        time.sleep(0.5)
    [archive] = found
    assert mapped_classes(feed, 10) > 500

    whole = archive.read_bytes()
    middle = len(whole) // 2
    for spoiled in (b"broken", whole[:middle], whole[:middle] + bytes(4096) + whole[middle + 4096 :]):
        archive.unlink()
        archive.write_bytes(spoiled)
        mapped_classes(feed, 20)
    assert sorted(row["id"] for row in feed.rows()) == sorted([*range(20), *[*range(20, 30)] * 3])
    assert [*(cache / "classes").iterdir()] == [archive]
