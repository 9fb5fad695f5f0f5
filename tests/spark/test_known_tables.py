"""A driver parses each metadata file once, and still sees the commits of other writers."""

from pathlib import Path
from urllib.parse import urlsplit

from tests.support.catalogs import CatalogCase, RestCase
from tests.support.feed_table import Table, refused


def test_a_loaded_table_has_another_engines_latest_commit(table: Table, elsewhere: Table) -> None:
    table.land(0, 2)
    for other in (10, 11):
        assert table.covered() == ((0, 2),)
        elsewhere.plain(other)
        assert other in table.ids()
    table.land(2, 4)
    assert table.ids() == [0, 1, 2, 3, 10, 11]
    assert len(elsewhere.ids()) == 6


def test_a_commit_is_retried_on_top_of_another_engines_commit(table: Table, elsewhere: Table) -> None:
    """Another engine commits after the table was loaded, so the commit check must run again on the newer table."""
    table.land(0, 2)
    loaded = table.ledger().loaded()
    elsewhere.plain(9)
    append = loaded.newAppend().set("note", "late")
    append.commit()
    refused(lambda: table.land(3, 4), "topic-0 begins at 3, the table ends at 2")
    table.land(2, 3)
    assert table.ids() == [0, 1, 2, 9]
    assert len(table.snapshots()) == 4


def test_a_loaded_table_keeps_its_snapshot_after_later_commits(table: Table, elsewhere: Table) -> None:
    """Reads of a loaded table use its snapshot, although the driver has loaded newer snapshots since."""
    table.land(0, 2)
    loaded = table.ledger().loaded()
    head = loaded.currentSnapshot().snapshotId()
    elsewhere.plain(9)
    table.land(2, 3)
    assert loaded.currentSnapshot().snapshotId() == head
    loaded.refresh()
    assert loaded.currentSnapshot().snapshotId() == table.head()


def test_a_recreated_table_has_no_position(table: Table, elsewhere: Table) -> None:
    table.land(0, 2)
    elsewhere.spark.sql(f"DROP TABLE {elsewhere.name}")
    assert not table.spark.catalog.tableExists(table.name)
    elsewhere.spark.sql(f"CREATE TABLE {elsewhere.name} (id BIGINT) USING iceberg")
    assert table.ledger().position() is None
    table.land(5, 6)
    assert table.ids() == [5]


def test_two_loads_read_a_metadata_file_once(table: Table, catalog: CatalogCase) -> None:
    table.land(0, 2)
    assert table.covered() == ((0, 2),)
    if isinstance(catalog, RestCase):
        return  # A REST catalog sends the metadata, so the driver reads no file.
    current = Path(urlsplit(catalog.pointer(table.name)).path)
    content = current.read_bytes()
    current.unlink()
    try:
        assert table.covered() == ((0, 2),)
        assert table.spark.table(table.name).columns == ["id"]
    finally:
        current.write_bytes(content)
    table.land(2, 3)
    assert table.ids() == [0, 1, 2]
