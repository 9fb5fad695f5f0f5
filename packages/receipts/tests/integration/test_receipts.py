"""Receipts of real feeds prove their tables, and every alteration of a table is found and named."""

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.ledger.snapshots import ancestors
from lakefeed.pipeline import Pipeline
from lakefeed_receipts.content import verify_content
from lakefeed_receipts.receipts import ENTRY, FeedReceipts, receipts_of
from lakefeed_receipts.settings import SHARED_KEY
from lakefeed_repair.backfill import backfill
from lakefeed_repair.rewind import plan_rewind, rewind
from packages.receipts.tests.receipted import DDL, METADATA, compact, offsets, pipeline, proven, values
from tests.support.cli import lakefeed
from tests.support.feed import Feed

ALTERATIONS = ("value", "null", "swap in a row", "swap between rows", "gone", "twice", "older file")


@pytest.mark.quick
def test_receipts_hold_through_compaction_evolution_rewind_and_expiry(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=2)
    feed.send(values(range(60)))
    part = pipeline(feed, limit=20)
    part.run(spark=lake, once=True)
    assert (proven(part, lake).rows, offsets(proven(part, lake))) == (60, 60)
    compact(feed, lake)
    wider = DDL.replace("small INT", "small BIGINT").replace("FLOAT", "DOUBLE").replace("(9,2)", "(20,2)")
    part = pipeline(feed, ddl=f"{wider}, extra STRING")
    feed.send(values(range(60, 90)))
    part.run(spark=lake, once=True)
    assert dict(lake.table(feed.table).dtypes)["small"] == "bigint"
    assert proven(part, lake).rows == 90
    plan = plan_rewind(part, "earliest", partition=0, delete_rows=True)
    rewind(part, plan, spark=lake)
    assert proven(part, lake).rows < 90
    part.run(spark=lake, once=True)
    assert (proven(part, lake).rows, offsets(proven(part, lake))) == (90, 90)
    compact(feed, lake)
    older = "older_than => TIMESTAMP '2999-01-01 00:00:00'"
    lake.sql(f"CALL {feed.catalog}.system.expire_snapshots(table => '{feed.name}.rows', {older})")
    assert proven(part, lake).rows == 90
    lake.sql(f"UPDATE {feed.table} SET name = 'another' WHERE id = 3")
    [fault] = verify_content(part, spark=lake).faults
    assert (fault.kind, "name" in fault.what) == ("content-changed", True)


def test_both_paths_have_the_same_receipts(lake: SparkSession, feed: Feed, tmp_path: Path) -> None:
    feed.create_topic(partitions=2)
    feed.send(values(range(500)))
    found = []
    for path in ("auto", "off"):
        other = Feed(feed.stack, tmp_path, fast_path=path)
        source = feed.source(max_records_per_batch=100_000)
        part = pipeline(other, source=source)
        part.run(spark=lake, once=True)
        table = open_table(other.table, connections=other.connections)
        [group] = receipts_of(table, other.name, SHARED_KEY).groups
        assert group.sums is not None
        names = {str(each.field_id): each.name for each in table.schema().fields}
        found.append({names.get(name, name): words for name, words in group.sums.items()})
    assert found[0] == found[1]
    assert len(found[0]) == 15


class Alterations:
    """A table with several commits, and ways to alter it by pyiceberg; each alteration is undone."""

    def __init__(self, feed: Feed, lake: SparkSession) -> None:
        feed.create_topic(partitions=3)
        self.feed, self.lake = feed, lake
        self.part = pipeline(feed, ddl="id BIGINT, a BIGINT, b BIGINT, name STRING", limit=40)
        for start in (0, 100, 200):
            rows = (
                {"id": each, "a": each * 3, "b": each * 5, "name": f"n{each}"} for each in range(start, start + 100)
            )
            feed.send([json.dumps(row).encode() for row in rows])
            self.part.run(spark=lake, once=True)
        self.table = open_table(feed.table, connections=feed.connections)
        self.first = self.table.current_snapshot()
        self.rows = self.table.scan().to_arrow()

    def alter(self, kind: str, chance: random.Random) -> tuple[str, str | None]:
        """Alter a row of the table; return the kind of the fault, and the column if values were changed."""
        at = chance.randrange(self.rows.num_rows)
        row = self.rows.slice(at, 1).to_pylist()[0]
        column = chance.choice(["a", "b", "name"])
        if kind == "gone":
            self.table.delete(f"id == {row['id']}")
            return "content-missing", None
        if kind == "twice":
            self.table.append(self.rows.slice(at, 1))
            return "content-doubled", None
        if kind == "older file":
            # The newest rows are replaced by as many older ones.
            self.table.delete(f"id == {row['id']}")
            self.table.append(self.rows.slice((at + 1) % self.rows.num_rows, 1))
            return "content-missing", None
        changed = [row]
        if kind == "value":
            row[column] = "other" if column == "name" else row[column] ^ 1 << chance.randrange(60)
        elif kind == "null":
            row[column] = None
        elif kind == "swap in a row":
            row["a"], row["b"] = row["b"] + (row["id"] == 0), row["a"]
            column = "a"
        else:
            other = self.rows.slice(
                (at + 1 + chance.randrange(self.rows.num_rows - 1)) % self.rows.num_rows, 1
            ).to_pylist()[0]
            row[column], other[column] = other[column], row[column]
            changed.append(other)
        ids = {each["id"] for each in changed}
        for each in ids:
            self.table.delete(f"id == {each}")
        self.table.append(pa.Table.from_pylist(changed, schema=self.rows.schema))
        return "content-changed", column

    def undo(self) -> None:
        assert self.first is not None
        self.lake.sql(
            f"CALL {self.feed.catalog}.system.set_current_snapshot('{self.feed.name}.rows', {self.first.snapshot_id})"
        )
        self.table.refresh()


def alterations(feed: Feed, lake: SparkSession, count: int) -> None:
    made = Alterations(feed, lake)
    assert proven(made.part, lake).rows == 300
    for seed in range(count):
        kind = ALTERATIONS[seed % len(ALTERATIONS)]
        expected, column = made.alter(kind, random.Random(seed))
        faults = verify_content(made.part, spark=lake).faults
        assert expected in {each.kind for each in faults}, (seed, kind, faults)
        assert all(each.partition is not None and each.end is not None for each in faults), (seed, kind, faults)
        if column is not None:
            assert all(column in each.what for each in faults), (seed, kind, faults)
        made.undo()
    assert proven(made.part, lake).rows == 300


def test_alterations_are_found_and_named(lake: SparkSession, feed: Feed) -> None:
    alterations(feed, lake, 2 * len(ALTERATIONS))


@pytest.mark.slow
def test_200_alterations_are_found_and_named(lake: SparkSession, feed: Feed) -> None:
    alterations(feed, lake, 200)


def test_an_edited_summary_is_found(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(values(range(60)))
    key = "0123456789"
    file = pipeline(feed, limit=20, receipts={"key": "${RECEIPTS_KEY}"}, environment={"RECEIPTS_KEY": key})
    file.run(spark=lake, once=True)
    table = open_table(feed.table, connections=feed.connections)
    line = [
        (each.snapshot_id, dict(each.summary.additional_properties))
        for each in ancestors(table, feed.name)[0]
        if each.summary
    ]

    def faults(edit: Callable[[list[tuple[int, dict[str, str]]]], object], key: str = key) -> list[str]:
        copy = [(number, dict(summary)) for number, summary in line]
        edit(copy)
        return [each.what for each in FeedReceipts(copy, table.properties, feed.name, key, whole=True).faults]

    entry = f"{ENTRY}.{feed.name}"
    text = line[1][1][entry]
    digit = "1" if text[-5] == "0" else "0"
    assert faults(lambda copy: None) == []
    assert faults(lambda copy: copy[1][1].update({entry: text[:-5] + digit + text[-4:]}))
    assert faults(lambda copy: copy[1][1].update({"lakefeed.counts": "{}"}))
    assert faults(lambda copy: copy[1][1].update({entry: "lost"}))
    assert faults(lambda copy: copy.pop(1))
    assert faults(lambda copy: copy.pop())
    assert faults(lambda copy: None, key="another")


@pytest.mark.quick
def test_a_statement_is_checked_by_the_public_key_alone(lake: SparkSession, feed: Feed, tmp_path: Path) -> None:
    feed.create_topic(partitions=1)
    feed.send(values(range(30)))
    decode = {"json": {"schema_ddl": DDL}, "metadata": METADATA}
    file = feed.write_file(source=feed.source(max_records_per_batch=10), decode=decode, receipts=True)
    Pipeline.from_file(file, environment=feed.environment).run(spark=lake, once=True)
    keys = [Ed25519PrivateKey.generate() for _ in range(2)]
    files = [tmp_path / f"{number}.pem" for number in range(4)]
    for key, secret, public in zip(keys, files[:2], files[2:], strict=True):
        secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    to = tmp_path / "proof.json"
    verify = ("verify", file, "--content", "--sign", files[0], "--to", to)
    shown = lakefeed(*verify, environment=feed.environment)
    assert "as written\n  all of the rows compared: 30 rows of 3 commits" in shown.stdout
    checked = lakefeed("verify", "--statement", to, "--public-key", files[2], "--output", "json")
    stated = json.loads(checked.stdout)
    assert (stated["valid"], stated["rows"]) == (True, 30)
    document = json.loads(to.read_text())
    assert document["public_key"] == base64.b64encode(keys[0].public_key().public_bytes_raw()).decode()
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps({**document, "statement": {**document["statement"], "rows": 31}}))
    mistakes: list[tuple[tuple[str | Path, ...], str]] = [
        ((changed,), "is not a signed statement, or was changed"),
        ((files[0],), "is not a signed statement, or was changed"),
        ((to, "--public-key", files[3]), "another key has signed the statement"),
        ((to, "--public-key", files[0]), "the file has no public key"),
        ((tmp_path / "none",), "the file cannot be read: No such file or directory"),
    ]
    for arguments, text in mistakes:
        refused = lakefeed("verify", "--statement", *arguments, status=2)
        assert text in refused.stderr
    refused = lakefeed(*verify[:-3], files[2], "--to", to, environment=feed.environment, status=2)
    assert "no private Ed25519 key" in refused.stderr


def test_a_part_of_the_table_is_compared_alone(lake: SparkSession, feed: Feed) -> None:
    made = Alterations(feed, lake)
    [row] = made.rows.slice(0, 1).to_pylist()
    made.table.delete(f"id == {row['id']}")
    faults = verify_content(made.part, spark=lake, partition=row["kafka_partition"]).faults
    assert [(each.kind, each.partition) for each in faults] == [("content-missing", row["kafka_partition"])]
    other = (row["kafka_partition"] + 1) % 3
    assert proven(made.part, lake, partition=other).rows > 0
    [fault] = faults
    assert fault.start is not None
    assert fault.end is not None
    assert fault.start <= row["kafka_offset"] < fault.end


def test_backfilled_rows_have_receipts(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(values(range(30)))
    part = pipeline(feed, source=feed.source(max_records_per_batch=100, start="latest"))
    part.run(spark=lake, once=True)
    feed.send(values(range(30, 40)))
    part.run(spark=lake, once=True)
    assert proven(part, lake).rows == 10
    backfill(part, spark=lake)
    assert (proven(part, lake).rows, offsets(proven(part, lake))) == (40, 40)
