"""Places in a store and on this machine, as pipeline files write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from lakefeed.config.connections import Catalog, Connections
from lakefeed.config.storage import is_local, storage_path


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("s3a://bucket/a/b", "s3a://bucket/a/b"),
        ("s3://bucket/a/b/", "s3a://bucket/a/b"),
        ("/data/lake", "file:///data/lake"),
        ("/data//lake/./x/", "file:///data/lake/x"),
        ("file:///data/lake", "file:///data/lake"),
        ("file:/data/lake", "file:///data/lake"),
        ("/data/with space/ä", "file:///data/with space/ä"),
    ],
)
def test_one_spelling_for_each_place(written: str, means: str) -> None:
    assert storage_path(written) == means
    assert storage_path(means) == means
    assert is_local(written) == means.startswith("file:")


@pytest.mark.parametrize(
    "written",
    [
        *("lake", "./lake", "../lake", "s3a://b/x", "s3a://bucket", "s3a://bucket/a/../b", "hdfs://host/x", ""),
        *("/", "file:///", "file://host/x", "file:x", "/data/../etc", "/data/a?b", "/data/a#b", "/data/*", "/data/%20"),
        "/data/a\nb",
    ],
)
def test_what_is_no_place(written: str) -> None:
    with pytest.raises(ValueError, match=r"write|written|misread|home"):
        storage_path(written)


def test_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert storage_path("~/lake") == f"file://{tmp_path}/lake"


def test_a_warehouse_in_a_folder_has_its_catalog_beside_the_tables() -> None:
    catalog = Catalog.model_validate({"warehouse": "/data/lake"})
    assert (catalog.type, catalog.uri) == ("jdbc", "jdbc:sqlite:/data/lake/catalog.db")
    assert catalog.warehouse == "file:///data/lake"
    assert catalog.folder == Path("/data/lake")
    other = Catalog.model_validate({"uri": "jdbc:sqlite:/elsewhere/c.db", "warehouse": "file:///data/lake"})
    assert other.sqlite_file == Path("/elsewhere/c.db")


def test_a_warehouse_in_a_store_needs_its_uri_and_a_rest_name_stays_a_name() -> None:
    with pytest.raises(ValidationError, match="starts with jdbc:"):
        Catalog.model_validate({"warehouse": "s3://lake/warehouse"})
    rest = Catalog.model_validate({"type": "rest", "uri": "http://catalog", "warehouse": "/team/lake"})
    assert (rest.warehouse, rest.folder) == ("/team/lake", None)
    with pytest.raises(ValidationError, match="is in S3"):
        Catalog.model_validate({"type": "glue", "warehouse": "/data/lake"})
    with pytest.raises(ValidationError, match="misread"):
        Catalog.model_validate({"warehouse": "/data/a#b"})


def test_the_environment_can_name_a_folder_alone() -> None:
    found = Connections.from_environment({"LAKEFEED_WAREHOUSE": "/data/lake"}).catalogs["lake"]
    assert found.sqlite_file == Path("/data/lake/catalog.db")
    assert not Connections.from_environment({"LAKEFEED_WAREHOUSE": "s3://lake/warehouse"}).catalogs
