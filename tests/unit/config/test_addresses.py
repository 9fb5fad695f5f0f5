"""All spellings of a path become one, and a pipeline may not use a location for two purposes."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lakefeed.config.addresses import is_local, storage_path
from lakefeed.config.connections import Catalog, Connections
from tests.support.pipeline_text import problems


@pytest.mark.parametrize(
    ("written", "spelling"),
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
def test_all_spellings_of_a_path_become_one(written: str, spelling: str) -> None:
    assert storage_path(written) == storage_path(spelling) == spelling
    assert is_local(written) == spelling.startswith("file:")


@pytest.mark.parametrize(
    "written",
    [
        *("lake", "./lake", "../lake", "s3a://b/x", "s3a://bucket", "s3a://bucket/a/../b", "hdfs://host/x", ""),
        *("/", "file:///", "file://host/x", "file:x", "/data/../etc", "/data/a?b", "/data/a#b", "/data/*", "/data/%20"),
        "/data/a\nb",
    ],
)
def test_a_wrong_path_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"write|written|misread|home"):
        storage_path(written)


def test_a_tilde_in_a_path_is_the_users_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert storage_path("~/lake") == f"file://{tmp_path}/lake"


def test_the_default_catalog_of_a_folder_is_a_file_in_the_folder() -> None:
    catalog = Catalog.model_validate({"warehouse": "/data/lake"})
    assert (catalog.type, catalog.uri) == ("jdbc", "jdbc:sqlite:/data/lake/catalog.db")
    assert catalog.warehouse == "file:///data/lake"
    assert catalog.folder == Path("/data/lake")
    other = Catalog.model_validate({"uri": "jdbc:sqlite:/elsewhere/c.db", "warehouse": "file:///data/lake"})
    assert other.sqlite_file == Path("/elsewhere/c.db")


def test_a_warehouse_that_does_not_fit_the_type_of_its_catalog_is_refused() -> None:
    with pytest.raises(ValidationError, match="starts with jdbc:"):
        Catalog.model_validate({"warehouse": "s3://lake/warehouse"})
    rest = Catalog.model_validate({"type": "rest", "uri": "http://catalog", "warehouse": "/team/lake"})
    assert (rest.warehouse, rest.folder) == ("/team/lake", None)
    with pytest.raises(ValidationError, match="is in S3"):
        Catalog.model_validate({"type": "glue", "warehouse": "/data/lake"})
    with pytest.raises(ValidationError, match="misread"):
        Catalog.model_validate({"warehouse": "/data/a#b"})


def test_a_warehouse_folder_in_the_environment_suffices_for_the_catalog_lake() -> None:
    found = Connections.from_environment({"LAKEFEED_WAREHOUSE": "/data/lake"}).catalogs["lake"]
    assert found.sqlite_file == Path("/data/lake/catalog.db")
    assert not Connections.from_environment({"LAKEFEED_WAREHOUSE": "s3://lake/warehouse"}).catalogs


KAFKA = {"bootstrap_servers": "a:9092,b:9092", "topics": ["hits"]}


def errors(folder: Path, **blocks: Any) -> str:
    """Return the errors of a pipeline with these blocks, joined to one text."""
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
    ({"sinks": {"a": {"iceberg": {"table": "lake.shop.Rows"}}}}, "two sinks cannot write to it"),
    ({"sink": {"kafka": {"topic": "hits", "bootstrap_servers": "B:9092"}}}, "would read its own"),
    ({"sink": {"kafka": {"topic": "dead"}}, "dead_letters": {"topic": "dead"}}, MIXED),
    ({"source": {"iceberg": {"table": "lake.shop.rows"}}, "decode": None}, "would read its own"),
    (many(None, dead_letters={"table": "lake.shop.{topic}"}), MIXED),
    (many(["hits", "hits_dead"], dead_letters={"table": "lake.shop.{topic}_dead"}), MIXED),
    (many(["hits.a", "hits_a"]), "two sinks cannot write to it"),
    (many(["Hits", "hits"]), "two sinks cannot write to it"),
    # Both topics have the same feed name, so that their dead letters would be mixed up.
    (
        many(
            ["hits.a", "hits_a"],
            dead_letters={"table": "lake.shop.dead"},
            tables={"topics": {"hits_a": {"table": "lake.shop.other"}}},
        ),
        "both feeds have the same name",
    ),
    (many(None, tables={"topics": {"hits.a": {"dead_letters": {"table": "lake.shop.hits_a"}}}}), MIXED),
    (many(None, tables={"topics": {"hits.a": {"dead_letters": {"topic": "hits.dead"}}}}), "would read its own"),
]


@pytest.mark.parametrize(("blocks", "message"), WRONG)
def test_two_uses_of_one_location_are_refused(tmp_path: Path, blocks: dict[str, Any], message: str) -> None:
    assert message in errors(tmp_path, **blocks)


NAMED = {name: {"table": f"lake.shop.{name}"} for name in ("Hits", "hits")}
RIGHT: list[dict[str, Any]] = [
    many(["Hits", "hits"], tables={"topics": NAMED}),
    {"dead_letters": {"table": "lake.shop.rows_dead"}},
    many(["hits", "clicks"], dead_letters={"table": "lake.shop.dead"}),
    many(["hits.a", "hits_a"], tables={"topics": {"hits_a": {"table": "lake.shop.other"}}}),
    {"sink": {"kafka": {"topic": "hits", "bootstrap_servers": "other:9092"}}},
]


@pytest.mark.parametrize("blocks", RIGHT)
def test_similar_locations_are_accepted(tmp_path: Path, blocks: dict[str, Any]) -> None:
    assert errors(tmp_path, **blocks) == ""
