"""Tables and checkpoints that an older version wrote resume under this one: no record twice, none missing.

``tests/data/older_version/make.py`` wrote them with the code of commit ca04350. Kafka chooses a topic's id, so the
test puts the id of its own topic in the place of the one that was written.
"""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakefeed.clients.kafka.topics import Topics
from lakefeed.local import Endpoints
from tests.support.feed import Feed
from tests.support.starts import run_as_planned
from tests.support.table_files import store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDER = Path(__file__).parent.parent / "data" / "older_version"
CASES: dict[str, dict[str, Any]] = json.loads((OLDER / "cases.json").read_text())
NEWER = {
    "type": "record",
    "name": "Trip",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "zone", "type": "string"},
        {"name": "fare", "type": ["null", "double"], "default": None},
        {"name": "tip", "type": ["null", "double"], "default": None},
    ],
}


class Older:
    """A feed whose topic, table and checkpoint are as the older version left them."""

    def __init__(self, stack: Endpoints, folder: Path, name: str) -> None:
        self.feed = Feed(stack, folder, name=name)
        self.blocks: dict[str, Any] = CASES[name]["blocks"]
        self.notes: list[str] = []
        self.feed.create_topic(partitions=CASES[name]["partitions"])
        for batch in CASES[name]["batches"]:
            for group in batch:
                values = group["values"]
                framed = self.feed.avro(values, group["schema"]) if "schema" in group else list(map(str.encode, values))
                self.feed.send(framed, partition=group["partition"])
        self._restore()

    def _restore(self) -> None:
        new_id = Topics(self.feed.stack.bootstrap_servers).describe(self.feed.topic).topic_id
        with zipfile.ZipFile(OLDER / f"{self.feed.name}.zip") as written:
            facts = json.loads(written.read("written.json"))
            old_id = facts["topic_id"].encode()
            replaced = 0
            for name in written.namelist():
                if not name.startswith("objects/"):
                    continue
                content = written.read(name)
                replaced += content.count(old_id)
                with store(self.feed).open_output_stream(
                    f"{self.feed.stack.bucket}/{name.removeprefix('objects/')}"
                ) as file:
                    file.write(content.replace(old_id, new_id.encode()))
        assert replaced
        with closing(sqlite3.connect(self.feed.stack.catalog_file)) as catalog, catalog:
            for table, metadata in facts["tables"].items():
                catalog.execute(
                    "INSERT INTO iceberg_tables VALUES (?, ?, ?, ?, NULL, 'TABLE')",
                    ["lake", *table.split("."), metadata],
                )

    def run(self, lake: SparkSession) -> int:
        """Run once, as ``plan`` and ``offsets show`` foretell; return the records read."""
        return run_as_planned(self.feed.pipeline(**self.blocks), lake, self.notes).records

    def assert_verified(self, *, offsets: int) -> None:
        verification = self.feed.pipeline(**self.blocks).verify()
        assert verification.faults == ()
        assert verification.offsets == offsets


@pytest.mark.quick
def test_an_iceberg_table_resumes_with_its_checkpoint_and_without(
    stack: Endpoints, lake: SparkSession, tmp_path: Path
) -> None:
    older = Older(stack, tmp_path, "older_iceberg")
    assert older.run(lake) == 0
    older.feed.send(older.feed.avro([{"id": 50, "zone": "z0", "fare": 1.0, "tip": 2.0}], NEWER), partition=1)
    older.feed.send([b"not avro either"], partition=0)
    assert older.run(lake) == 2
    assert older.notes == []
    assert Counter(row["id"] for row in older.feed.rows()) == Counter(range(51))
    assert [row["tip"] for row in older.feed.rows() if row["tip"] is not None] == [2.0]
    letters = older.feed.rows(f"lake.{older.feed.name}.dead_letters")
    assert sorted((row["partition"], row["offset"]) for row in letters) == [(0, 40), (1, 10)]
    older.assert_verified(offsets=53)

    store(older.feed).delete_dir(older.feed.checkpoint.removeprefix("s3a://"))
    older.feed.send(older.feed.avro([{"id": 51, "zone": "z0", "fare": 1.0, "tip": 2.0}], NEWER), partition=1)
    assert older.run(lake) == 1
    assert Counter(row["id"] for row in older.feed.rows()) == Counter(range(52))
    older.assert_verified(offsets=54)


def test_parquet_files_and_their_checkpoint_resume(stack: Endpoints, lake: SparkSession, tmp_path: Path) -> None:
    older = Older(stack, tmp_path, "older_parquet")
    assert older.run(lake) == 0
    older.feed.send([b'{"id": 50, "zone": "z0"}', b"{broken too"], partition=1)
    assert older.run(lake) == 2
    assert older.notes == []
    files = older.blocks["sink"]["parquet"]["path"]
    assert Counter(row.id for row in lake.read.parquet(files).select("id").collect()) == Counter(range(51))
    letters = older.feed.rows(f"lake.{older.feed.name}.dead_letters")
    assert sorted((row["partition"], row["offset"]) for row in letters) == [(1, 10), (1, 12)]


def test_upserts_and_their_history_resume(stack: Endpoints, lake: SparkSession, tmp_path: Path) -> None:
    older = Older(stack, tmp_path, "older_upserts")
    assert older.run(lake) == 0
    older.feed.send(older.feed.avro([{"id": 3, "zone": "again"}, {"id": 21, "zone": "new"}]), partition=0)
    assert older.run(lake) == 2
    zones = {row["id"]: row["zone"] for row in older.feed.rows()}
    assert sorted(zones) == list(range(22))
    assert (zones[3], zones[20], zones[21]) == ("again", "new", "new")
    older.assert_verified(offsets=24)


def test_windows_keep_their_state(stack: Endpoints, lake: SparkSession, tmp_path: Path) -> None:
    older = Older(stack, tmp_path, "older_windows")
    older.run(lake)
    late = [json.dumps({"zip": "8001", "hittime": f"2024-01-01T12:{minute:02}:00Z"}).encode() for minute in (41, 59)]
    older.feed.send(late, partition=0)
    assert older.run(lake) == 2
    found = {row["begins"].strftime("%H:%M"): row["hits"] for row in older.feed.rows()}
    # 12:30 is closed by 12:59 less ten minutes; what it counts was kept as state by the older version.
    assert found == {"12:00": 4, "12:10": 1, "12:20": 2, "12:30": 1}
    older.assert_verified(offsets=11)
