"""Tables of Iceberg's format version 3: upgrades, deletion vectors, row lineage, and readers other than Spark."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.errors import ConfigError
from lakefeed.records.schema.fit import columns_of
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.iceberg.table import IcebergTable
from lakefeed_upkeep.table_stats import read_health
from tests.spark.test_branches import Branched


class Versioned(Branched):
    """A feed's table without a branch, with methods that read its format version, delete files and row lineage."""

    def __post_init__(self) -> None:
        self.settings = {"branch": None, **self.settings}
        super().__post_init__()

    def version(self) -> int:
        return self.table.ledger.format_version()

    def metadata_files(self) -> int:
        return len(open_table(self.name, connections=self.connections).metadata.metadata_log)

    def deletes(self) -> Counter[str]:
        found = self.spark.sql(f"SELECT file_format, count(*) AS files FROM {self.name}.delete_files GROUP BY ALL")
        return Counter({row.file_format: row.files for row in found.collect()})

    def lineage(self) -> dict[int, tuple[int, int]]:
        rows = self.spark.sql(f"SELECT id, _row_id, _last_updated_sequence_number AS seq FROM {self.name}").collect()
        return {row.id: (row["_row_id"], row.seq) for row in rows}

    def without_spark(self) -> list[int]:
        table = open_table(self.name, connections=self.connections)
        found: list[int] = table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
        return sorted(found)


UPSERT = {"mode": "upsert", "keys": ["id"]}


@pytest.mark.quick
@pytest.mark.parametrize("merges", [False, True], ids=["index", "merge"])
def test_upserts_write_deletion_vectors_that_every_reader_applies(
    checked: SparkSession, connections: Connections, merges: bool
) -> None:
    settings = {**UPSERT, "format_version": 3} | ({"key_index_mb": 0} if merges else {})
    feed = Versioned(checked, connections, settings)
    feed.land(0, 60, list(range(60)))
    first = feed.lineage()
    feed.land(60, 90, list(range(40, 70)))
    feed.land(90, 100, list(range(10)))
    assert feed.version() == 3
    assert feed.deletes().keys() == {"PUFFIN"}
    assert feed.read() == list(range(70))
    assert feed.without_spark() == list(range(70))
    lineage = feed.lineage()
    assert len({row_id for row_id, _ in lineage.values()}) == 70
    # A MERGE keeps the id of the row; an upsert by the index of keys gives a new id. Both set the commit's sequence
    # number.
    kept = {key for key, (row_id, _) in first.items() if lineage[key][0] == row_id}
    assert kept == {key for key in first if merges or 10 <= key < 40}
    assert lineage[5][1] > lineage[45][1] > lineage[15][1] == first[15][1]


@pytest.mark.parametrize("settings", [pytest.param({}, marks=pytest.mark.slow), UPSERT], ids=["append", "upsert"])
def test_a_new_format_version_in_the_file_upgrades_the_table_in_one_commit_and_forever(
    checked: SparkSession, connections: Connections, settings: dict[str, Any]
) -> None:
    feed = Versioned(checked, connections, settings)
    feed.land(0, 30, list(range(30)))
    feed.land(30, 40, list(range(10)) if settings else ())
    assert feed.version() == 2
    if settings:
        assert feed.deletes().keys() == {"PARQUET"}
    feed.settings["format_version"] = 3
    before = feed.metadata_files()
    planned = type(feed.table)(checked, IcebergSinkConfig.model_validate(feed.settings), feed="shop")
    [change] = planned.changes(feed.rows(0, 0).schema)
    assert [statement for statement in change.statements if "format-version" in statement] == list(change.statements)
    assert "is upgraded to format version 3 for good" in change.notes[0]
    assert feed.version() == 2
    feed.start()
    # A start takes the fence, so it has made two commits with the upgrade.
    assert feed.metadata_files() - before == 2
    assert feed.version() == 3
    feed.land(40, 50, list(range(5, 15)) if settings else ())
    expected = list(range(30)) if settings else [*range(30), *range(30, 50)]
    assert feed.read() == expected
    assert feed.without_spark() == expected
    assert planned.changes(feed.rows(0, 0).schema)[0].statements == ()
    with pytest.raises(ConfigError, match="Iceberg cannot downgrade a table"):
        feed.start(format_version=2)
    feed.start(format_version=None)
    assert feed.version() == 3


@pytest.mark.slow
def test_compaction_removes_deletion_vectors_and_keeps_the_row_ids(
    checked: SparkSession, connections: Connections
) -> None:
    feed = Versioned(checked, connections, {**UPSERT, "format_version": 3})
    for start in range(0, 100, 20):
        feed.land(start, start + 20, list(range(start // 2, start // 2 + 20)))
    before, rows = feed.lineage(), feed.read()
    report = feed.upkeep(compact={"min_files": 2}, manifests={"more_than": 1, "delete_files": 2})
    assert report.did.files_after < report.did.files_before
    assert not report.gave_up
    assert feed.lineage() == before
    assert feed.read() == rows == feed.without_spark()
    assert not feed.deletes()
    again = feed.upkeep(compact={"min_files": 2}, manifests={"more_than": 1, "delete_files": 2})
    assert [each.step for each in again.due if each.step == "compact"] == []
    feed.land(100, 120, list(range(20)))
    assert feed.read() == rows


@pytest.mark.slow
def test_delete_files_older_than_an_upgrade_are_rewritten_and_deletion_vectors_stay(
    checked: SparkSession, connections: Connections
) -> None:
    feed = Versioned(checked, connections, UPSERT)
    feed.land(0, 60, list(range(60)))
    for start in range(60, 80, 5):
        feed.land(start, start + 5, list(range(start - 60, start - 55)))
    feed.start(format_version=3)
    for start in range(80, 100, 5):
        feed.land(start, start + 5, list(range(start - 60, start - 55)))
    rows = feed.read()
    for _ in range(2):
        report = feed.upkeep(only=["manifests"], manifests={"delete_files": 2, "more_than": 1000})
        assert feed.read() == rows == feed.without_spark() == list(range(60))
    assert "manifests" not in {each.step for each in report.due}, report


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_files_of_the_column_encoder_support_lineage_and_compaction(
    checked: SparkSession, connections: Connections, version: int
) -> None:
    checked.conf.set("spark.lakefeed.fastPath", "true")
    try:
        feed = Versioned(checked, connections, {"format_version": version})
        assert feed.table.encoder_refusal(lambda: None) is None
        feed.land(0, 50)
        feed.land(50, 80)
        if version == 3:
            assert sorted(row_id for row_id, _ in feed.lineage().values()) == list(range(80))
            report = feed.upkeep(compact={"min_files": 2})
            assert report.did.files_after == 1
            assert sorted(row_id for row_id, _ in feed.lineage().values()) == list(range(80))
        assert feed.read() == feed.without_spark() == list(range(80))
        assert read_health(feed.name, connections=connections).records == 80
    finally:
        checked.conf.unset("spark.lakefeed.fastPath")


def test_in_version_3_older_rows_get_the_default_of_an_added_field(
    checked: SparkSession, connections: Connections
) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "v", "type": "string"}]
    added: list[dict[str, Any]] = [
        {"name": "city", "type": "string", "default": "it's \\ \u00e9"},
        {"name": "n", "type": ["null", "long"], "default": None},
        {"name": "share", "type": "double", "default": 0.5},
        {"name": "is_new", "type": "boolean", "default": False},
        {"name": "level", "type": ["int", "null"], "default": -3},
    ]
    for version, expected in ((3, ("it's \\ \u00e9", None, 0.5, False, -3)), (2, (None,) * 5)):
        sink = IcebergSinkConfig(table=f"{next(iter(connections.catalogs))}.ns.d{version}", format_version=version)
        table = IcebergTable(checked, sink, feed="shop", takes_defaults=True)
        schemas = [
            StoredSchema(json.dumps({"type": "record", "name": "R", "fields": chosen}), frozenset())
            for chosen in (fields, [*fields, *added])
        ]
        table.apply_schema(columns_of(schemas[0].schema), schemas[0])
        checked.sql(f"INSERT INTO {table.name} VALUES (1, 'a')")
        before = len(open_table(table.name, connections=connections).metadata.metadata_log)
        table.apply_schema(columns_of(schemas[1].schema), schemas[1])
        # Adding the fields took two commits: one for the stored reader's schema, one for the columns.
        assert len(open_table(table.name, connections=connections).metadata.metadata_log) - before == 2
        names = [str(each["name"]) for each in added]
        [row] = checked.sql(f"SELECT {', '.join(names)} FROM {table.name}").collect()
        assert tuple(row) == expected
        stored = open_table(table.name, connections=connections).scan(selected_fields=tuple(names)).to_arrow()
        assert tuple(stored.to_pylist()[0][name] for name in names) == expected
        # A new null stays null: the default applies only to rows older than the column.
        checked.sql(f"INSERT INTO {table.name} VALUES (2, 'b', NULL, NULL, NULL, NULL, NULL)")
        [row] = checked.sql(f"SELECT {', '.join(names)} FROM {table.name} WHERE id = 2").collect()
        assert tuple(row) == (None,) * 5
        assert table.changes(columns_of(schemas[1].schema), schemas[1])[0].statements == ()


@pytest.mark.slow
def test_the_same_changes_write_fewer_files_and_bytes_than_in_version_2(
    checked: SparkSession, connections: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    cost: dict[int, tuple[int, int]] = {}
    for version in (2, 3):
        feed = Versioned(checked, connections, {**UPSERT, "format_version": version})
        feed.land(0, 20_000, list(range(20_000)))
        folder = Path(feed.table.location().removeprefix("file:"))
        before = {file: file.stat().st_size for file in folder.rglob("*") if file.is_file()}
        dice = random.Random(20180208)
        for batch in range(20):
            start = 20_000 + 500 * batch
            feed.land(start, start + 500, dice.sample(range(20_000), 500))
        assert len(feed.read()) == 20_000
        written = {file: file.stat().st_size for file in folder.rglob("*") if file.is_file() and file not in before}
        written = {file: size for file, size in written.items() if not file.name.endswith(".crc")}
        cost[version] = len(written), sum(written.values())
    with capsys.disabled():
        print(f"\n20 batches of 500 changes: version 2 {cost[2]}, version 3 {cost[3]} (files, bytes)")
    assert cost[3][0] <= cost[2][0]
    assert cost[3][1] < cost[2][1]
