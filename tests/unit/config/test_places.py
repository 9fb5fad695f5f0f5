"""Each place that a pipeline writes to is used for one thing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipeline_text import problems

KAFKA = {"bootstrap_servers": "a:9092,b:9092", "topics": ["hits"]}


def said(folder: Path, **blocks: Any) -> str:
    """What is wrong with a pipeline that has these blocks."""
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
    # One name of a feed, whose letters could not be distinguished.
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
