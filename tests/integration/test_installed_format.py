"""A feed decodes with the format of docs/extension-points.md, which is installed as a separate package."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support.feed import Feed
from tests.support.plugin import forget_blocks, put_page_on_path

GOOD = [f"GET /offers/{number} 200".encode() for number in range(20)]
POISON = {
    b"GET /offers": "method, path and status are expected",
    b"GET /offers ok": "the status is not a number",
    b"GET /\xff 200": "not UTF-8",
    b"": "method, path and status are expected",
}


@pytest.fixture(autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    put_page_on_path(tmp_path_factory.mktemp("package"), monkeypatch)
    yield
    monkeypatch.undo()
    forget_blocks()


@pytest.mark.quick
def test_an_installed_format_gives_rows_and_dead_letters(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send([*GOOD[:10], *POISON, *GOOD[10:]])
    letters = f"lake.{feed.name}.letters"
    blocks = {"decode": {"access_log": {}, "metadata": ["offset"]}, "dead_letters": {"table": letters}}
    pipeline = feed.pipeline(**blocks)
    [plan] = pipeline.plan(spark=lake).tables
    assert any("(`method` STRING, `path` STRING, `status` INT, `kafka_offset`" in each for each in plan.statements)
    summary = pipeline.run(spark=lake, once=True)
    assert (summary.records, summary.rows, summary.dead_letters) == (24, 20, 4)
    rows = feed.rows()
    assert {row["path"] for row in rows} == {f"/offers/{number}" for number in range(20)}
    assert {row["status"] for row in rows} == {200}
    reasons = {row["value"]: row["reason"] for row in feed.rows(letters)}
    assert reasons == POISON
