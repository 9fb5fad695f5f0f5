"""Addresses in a store or on this machine have one spelling; find those that a pipeline uses twice."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lakefeed.config.addresses import is_local, storage_path
from lakefeed.config.connections import Catalog, Connections
from tests.support.pipeline_text import problems


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


KAFKA = {"bootstrap_servers": "a:9092,b:9092", "topics": ["hits"]}


def said(folder: Path, **blocks: Any) -> str:
    """Return the errors of a pipeline with these blocks, or an empty text."""
    plain: dict[str, Any] = {
        "name": "shop",
        "source": {"kafka": KAFKA},
        "decode": {"json": {"schema_ddl": "id BIGINT"}},
        "sink": {"iceberg": {"table": "lake.shop.rows"}},
        "checkpoint": "s3a://lake/checkpoints/shop",
        "catalogs": {"lake": {"uri": "jdbc:sqlite:/tmp/c.db", "warehouse": "s3://lake/w"}},
    }
    path = folder / "pipeline.yaml"
    path.write_text(json.dumps({key: each for key, each in {**plain, **blocks}.items() if each is not None}))
    return "; ".join(each.what for each in problems(path, environment={"PW": "x"})[1])


def many(topics: list[str] | None, table: str = "lake.shop.{topic}", **blocks: Any) -> dict[str, Any]:
    chosen = {"topics": topics} if topics else {"topics_pattern": "hits.*"}
    source = {"kafka": {"bootstrap_servers": "a:9092", **chosen}}
    return {"source": source, "sink": {"iceberg": {"table": table}}, "checkpoint": None, **blocks}


def upserting(**more: str) -> dict[str, Any]:
    return {"iceberg": {"table": "lake.shop.rows", "mode": "upsert", "keys": ["id"], **more}}


MIXED = "rows and dead letters would mix"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"dead_letters": {"table": "lake.shop.rows"}}, MIXED),
    ({"dead_letters": {"table": "lake.Shop.ROWS"}}, MIXED),
    ({"sinks": {"a": {"iceberg": {"table": "lake.shop.b"}}}, "dead_letters": {"table": "lake.shop.b"}}, MIXED),
    ({"sink": upserting(history="lake.shop.old"), "dead_letters": {"table": "lake.shop.old"}}, MIXED),
    ({"sinks": {"a": {"iceberg": {"table": "lake.shop.Rows"}}}}, "goes where another sink goes"),
    ({"sink": {"kafka": {"topic": "hits", "bootstrap_servers": "B:9092"}}}, "go in a circle"),
    ({"sink": {"kafka": {"topic": "dead"}}, "dead_letters": {"topic": "dead"}}, MIXED),
    ({"source": {"iceberg": {"table": "lake.shop.rows"}}, "decode": None}, "go in a circle"),
    (many(None, dead_letters={"table": "lake.shop.{topic}"}), MIXED),
    (many(["hits", "hits_dead"], dead_letters={"table": "lake.shop.{topic}_dead"}), MIXED),
    (many(["hits.a", "hits_a"]), "goes where another sink goes"),
    (many(["Hits", "hits"]), "goes where another sink goes"),
    # Both topics give one feed name, so their dead letters could not be distinguished.
    (
        many(
            ["hits.a", "hits_a"],
            dead_letters={"table": "lake.shop.dead"},
            tables={"topics": {"hits_a": {"table": "lake.shop.other"}}},
        ),
        "are one place",
    ),
    (many(None, tables={"topics": {"hits.a": {"dead_letters": {"table": "lake.shop.hits_a"}}}}), MIXED),
    (many(None, tables={"topics": {"hits.a": {"dead_letters": {"topic": "hits.dead"}}}}), "go in a circle"),
]


@pytest.mark.parametrize(("blocks", "message"), WRONG)
def test_one_place_for_two_things(tmp_path: Path, blocks: dict[str, Any], message: str) -> None:
    assert message in said(tmp_path, **blocks)


NAMED = {name: {"table": f"lake.shop.{name}"} for name in ("Hits", "hits")}
RIGHT: list[dict[str, Any]] = [
    many(["Hits", "hits"], tables={"topics": NAMED}),
    {"dead_letters": {"table": "lake.shop.rows_dead"}},
    many(["hits", "clicks"], dead_letters={"table": "lake.shop.dead"}),
    many(["hits.a", "hits_a"], tables={"topics": {"hits_a": {"table": "lake.shop.other"}}}),
    {"sink": {"kafka": {"topic": "hits", "bootstrap_servers": "other:9092"}}},
]


@pytest.mark.parametrize("blocks", RIGHT)
def test_places_that_only_look_alike(tmp_path: Path, blocks: dict[str, Any]) -> None:
    assert said(tmp_path, **blocks) == ""
