"""The model of ``examples/ml_stream`` learns each record once despite kills; a running feed uses its newest version."""

import json
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from lakefeed.errors import ResourceMissing
from lakefeed.offsets.ranges import OffsetRanges
from tests.support.cli import Running, lakefeed
from tests.support.faults.drivers import SHORT_LIVED
from tests.support.feed import Feed

EXAMPLE = Path(__file__).parents[2] / "examples" / "ml_stream"
SALES = "area DOUBLE, rooms DOUBLE, price DOUBLE"
RECORDS, A_BATCH = 120, 30
DYING = """
import os
import signal

from model import LinearModel


class Dying(LinearModel):
    def __init__(self, moment, **options):
        super().__init__(**options)
        self.moment = moment

    def write(self, rows, batch):
        self.dies("before it learns", batch)
        super().write(rows, batch)
        self.dies("after it has learned", batch)

    def sums(self, rows):
        found = super().sums(rows)
        self.dies("between the sums and the version", None)
        return found

    def dies(self, moment, batch):
        newest = self.newest() if batch is None else None
        is_second = batch.id == 1 if batch else newest is not None
        if moment == self.moment and is_second:
            os.killpg(0, signal.SIGKILL)
"""
MOMENTS = ("before it learns", "between the sums and the version", "after it has learned")


def sale(number: int) -> dict[str, float]:
    area, rooms = 40 + 7 * (number % 13), 1 + number % 5
    return {"area": area, "rooms": rooms, "price": 1000 * area + 5000 * rooms + 100 * (number % 7)}


def encoded(rows: list[dict[str, float]]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def least_squares(sales: list[dict[str, float]]) -> Any:
    terms = np.array([[1, each["area"], each["rooms"]] for each in sales])
    return np.linalg.lstsq(terms, np.array([each["price"] for each in sales]))[0]


def learning(feed: Feed, *, model: str = "model:LinearModel", **options: str) -> Path:
    shutil.copy(EXAMPLE / "model.py", feed.folder)
    (feed.folder / "dying.py").write_text(DYING)
    settings = {"table": model_of(feed), "features": "area, rooms", "label": "price", **options}
    return feed.write_file(
        source=feed.source(max_records_per_batch=A_BATCH),
        decode={"json": {"schema_ddl": SALES}},
        sinks={"model": {"python": {"path": model, "options": settings}}},
    )


def model_of(feed: Feed) -> str:
    return f"{feed.catalog}.{feed.name}.model"


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_feed_learns_each_record_once(feed: Feed, moment: str) -> None:
    feed.create_topic(partitions=1)
    sales = [sale(number) for number in range(RECORDS)]
    feed.send(encoded(sales))
    environment = {**feed.environment, **SHORT_LIVED}

    dying = learning(feed, model="dying:Dying", moment=moment)
    victim = Running(["run", dying, "--once"], environment, feed.folder / "killed.log")
    assert victim.process.wait(300) < 0, victim.said()
    before = feed.rows(model_of(feed))
    assert len(before) == (2 if moment == "after it has learned" else 1)

    lakefeed("run", learning(feed), "--once", environment=environment)
    versions = sorted(feed.rows(model_of(feed)), key=lambda each: each["version"])
    assert [each["version"] for each in versions] == [1, 2, 3, 4]
    assert [each["rows"] for each in versions] == [30, 60, 90, 120]
    learned = [OffsetRanges.from_json(each["ranges"]) for each in versions]
    assert [(each.start, each.end) for batch in learned for each in batch.ranges] == [
        (0, 30),
        (30, 60),
        (60, 90),
        (90, 120),
    ]
    for each in versions:
        assert each["weights"] == pytest.approx(least_squares(sales[: each["rows"]]), rel=1e-6)
    assert len(feed.rows()) == RECORDS
    lakefeed("verify", learning(feed), environment=feed.environment)


def scoring(feed: Feed, models: str) -> Path:
    """Write a pipeline file that scores offers as ``score.yaml`` does."""
    example: dict[str, Any] = yaml.safe_load((EXAMPLE / "score.yaml").read_text("utf-8"))
    sql = example["transform"]["sql"].replace("homes_on_offer", feed.name)
    transform = {"tables": {"models": {"table": models}}, "sql": sql}
    return feed.write_file(source=feed.source(), decode=example["decode"], transform=transform)


def scored(feed: Feed, count: int, running: Running) -> list[dict[str, Any]]:
    """Wait until the scoring feed has landed `count` rows; return the rows."""
    deadline = time.monotonic() + 120
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        assert time.monotonic() < deadline, running.said()
        time.sleep(0.5)
        with suppress(ResourceMissing):  # The table does not exist before the first batch.
            rows = feed.rows()
    return sorted(rows, key=lambda each: each["id"])


@pytest.mark.slow
def test_a_running_feed_uses_a_new_version_of_the_model_from_the_next_batch(feed: Feed, tmp_path: Path) -> None:
    sales, offer = Feed(feed.stack, tmp_path), {"area": 70, "rooms": 2}
    for each in (sales, feed):
        each.create_topic(partitions=1)
    learn(sales, price=1000)
    with Running(["run", scoring(feed, model_of(sales))], feed.environment, tmp_path / "scoring.log") as running:
        feed.send(encoded([{"id": 1, **offer}]))
        [first] = scored(feed, 1, running)
        assert (first["price"], first["model_version"]) == (70_000, 1)
        learn(sales, price=2000)
        feed.send(encoded([{"id": 2, **offer}]))
        [_, second] = scored(feed, 2, running)
        assert (second["price"], second["model_version"]) == (105_000, 2)
        assert running.ask_to_stop(signal.SIGINT) == 0


def learn(sales: Feed, *, price: int) -> None:
    """Train the model with 20 sales at `price` per square metre."""
    sales.send(encoded([{"area": area, "rooms": area % 5, "price": price * area} for area in range(40, 60)]))
    lakefeed("run", learning(sales), "--once", environment={**sales.environment, **SHORT_LIVED})
