"""In queries with state, each window or group lands once, and a start without the state is refused."""

import json
import threading
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import CheckpointMismatch, ConfigError
from lakefeed.feed.progress import FinishedBatch
from lakefeed_local.stack import Endpoints
from tests.support.feed import TRIP, Feed

START = datetime(2024, 1, 1, 12, 0, tzinfo=UTC)
DECODE = {"json": {"schema_ddl": "zip STRING, hittime TIMESTAMP"}}
WINDOWS = "SELECT window.start AS begins, zip, count(*) AS hits FROM {view} GROUP BY window(hittime, {window}), zip"
LATE = {"column": "hittime", "delay": "10 minutes"}


@pytest.fixture
def feed(stack: Endpoints, tmp_path: Path) -> Feed:
    made = Feed(stack, tmp_path)
    made.create_topic(partitions=2)
    return made


def hits(*minutes: float, zip_code: str = "8001") -> list[bytes]:
    """Return records of hits at these times, in minutes after noon."""
    return [
        json.dumps({"zip": zip_code, "hittime": (START + timedelta(minutes=each)).isoformat()}).encode()
        for each in minutes
    ]


def settings(feed: Feed, *, window: str = "'10 minutes', '5 minutes', '2 minutes'", **blocks: Any) -> dict[str, Any]:
    transform = {"sql": WINDOWS.format(view=feed.name, window=window), "watermark": LATE}
    return {"decode": DECODE, "transform": {**transform, **blocks.pop("transform", {})}, **blocks}


def counts(feed: Feed) -> dict[tuple[datetime, str], int]:
    rows = feed.rows()
    found = {(each["begins"], each["zip"]): each["hits"] for each in rows}
    assert len(found) == len(rows)
    return found


def expected(minutes: list[float], *, closed_by: float | None = None) -> dict[tuple[datetime, str], int]:
    """Return the counts of the 10-minute windows that end by `closed_by`; windows begin at minutes 2, 7, 12, …."""
    found: dict[tuple[datetime, str], int] = defaultdict(int)
    for each in minutes:
        last = (each - 2) // 5 * 5 + 2
        for begins in (last, last - 5):
            if closed_by is None or begins + 10 <= closed_by:
                found[START + timedelta(minutes=begins), "8001"] += 1
    return dict(found)


@pytest.mark.quick
def test_windows_land_when_the_watermark_has_passed_them(feed: Feed, lake: SparkSession) -> None:
    pipeline = feed.pipeline(**settings(feed))
    feed.send(hits(0, 1, 4, 6, 11, 30), partition=0)
    first = pipeline.run(spark=lake, once=True)
    assert first.records == 6
    assert counts(feed) == expected([0, 1, 4, 6, 11, 30], closed_by=20)

    # The watermark is 12:20, so the windows that end by 12:17 have landed. The late hits at 13 and 19 still count in
    # open windows.
    feed.send(hits(13, 19, 60), partition=1)
    pipeline.run(spark=lake, once=True)
    found = counts(feed)
    message = expected([0, 1, 4, 6, 11, 30, 13, 19], closed_by=50)
    late = {key: message[key] for key in message if key[0] + timedelta(minutes=10) > START + timedelta(minutes=20)}
    assert found == {**late, **expected([0, 1, 4, 6, 11, 30], closed_by=20)}

    verification = pipeline.verify()
    assert verification.faults == ()
    assert verification.offsets == 9
    assert verification.records == 9


def test_dead_letters_are_counted_when_rows_are_groups(feed: Feed, lake: SparkSession) -> None:
    pipeline = feed.pipeline(**settings(feed), dead_letters={"table": f"lake.{feed.name}.letters"})
    feed.send([*hits(0, 1), b"no json", *hits(45)], partition=0)
    summary = pipeline.run(spark=lake, once=True)
    assert (summary.records, summary.dead_letters) == (4, 1)
    assert counts(feed) == expected([0, 1], closed_by=35)
    assert [each["offset"] for each in feed.rows(f"lake.{feed.name}.letters")] == [2]
    assert pipeline.verify().faults == ()


def test_state_that_does_not_fit_the_checkpoint_is_refused_with_the_difference(feed: Feed, lake: SparkSession) -> None:
    feed.send(hits(0, 30), partition=0)
    feed.pipeline(**settings(feed)).run(spark=lake, once=True)
    feed.send(hits(40), partition=0)
    changed = feed.pipeline(**settings(feed, window="'20 minutes'"))
    with pytest.raises(CheckpointMismatch, match=r"- aggregate: by window[\s\S]*\+ aggregate: by window"):
        changed.run(spark=lake, once=True)
    plain = feed.pipeline(decode=DECODE)
    with pytest.raises(CheckpointMismatch, match="a transform with state has filled the table"):
        plain.run(spark=lake, once=True)
    assert feed.pipeline(**settings(feed)).run(spark=lake, once=True).records == 1


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ({"watermark": None}, "without watermark"),
        ({"sql": "SELECT zip, hittime FROM {view} ORDER BY hittime"}, "Sorting is not supported"),
        (
            {"sql": "SELECT zip, row_number() OVER (PARTITION BY zip ORDER BY hittime) AS n FROM {view}"},
            "NON_TIME_WINDOW",
        ),
        ({"sql": "SELECT DISTINCT zip FROM {view}"}, "SELECT DISTINCT"),
        ({"sql": "SELECT a.zip FROM {view} a JOIN {view} b ON a.zip = b.zip"}, "read each stream exactly once"),
        ({"sql": "SELECT zipp FROM {view}"}, "zipp"),
    ],
)
def test_an_invalid_transform_with_state_is_refused_before_the_start(
    feed: Feed, lake: SparkSession, transform: dict[str, Any], message: str
) -> None:
    feed.send(hits(1))
    sql = {"sql": transform["sql"].format(view=feed.name)} if "sql" in transform else {}
    pipeline = feed.pipeline(**settings(feed, transform={**transform, **sql}))
    with pytest.raises(ConfigError, match=message):
        pipeline.run(spark=lake, once=True)
    assert not lake.catalog.tableExists(feed.table)


def test_a_batch_run_lands_the_same_windows_as_the_stream(feed: Feed, lake: SparkSession) -> None:
    minutes = [0.0, 1, 4, 6, 11, 13, 19, 30, 60]
    feed.send(hits(*minutes[:5]), partition=0)
    feed.send(hits(*minutes[5:]), partition=1)
    feed.pipeline(**settings(feed)).run(spark=lake, once=True)
    streamed = counts(feed)

    sink = {"iceberg": {"table": f"lake.{feed.name}.batch"}}
    pipeline = feed.pipeline(**settings(feed), sink=sink, checkpoint=f"{feed.checkpoint}-of-the-batch")
    landed = pipeline.run_batch(spark=lake)
    assert (landed.records, landed.dead_letters) == (9, 0)
    rows = feed.rows(f"lake.{feed.name}.batch")
    batch = {(each["begins"], each["zip"]): each["hits"] for each in rows}
    assert batch == expected(minutes)
    # The stream has landed only the windows that the watermark has closed; the batch run lands all windows.
    assert streamed == {key: batch[key] for key in expected(minutes, closed_by=50)}
    assert pipeline.verify().faults == ()
    with pytest.raises(CheckpointMismatch, match="keeps state"):
        pipeline.run_batch(spark=lake)
    with pytest.raises(CheckpointMismatch, match="is lost"):
        pipeline.run(spark=lake, once=True)


def test_without_state_batch_runs_and_streaming_runs_may_alternate(feed: Feed, lake: SparkSession) -> None:
    pipeline = feed.pipeline(decode=DECODE, transform={"sql": f"SELECT zip FROM {feed.name} WHERE zip < '5'"})
    feed.send([*hits(1, zip_code="1000"), *hits(1, 2)])
    assert pipeline.run_batch(spark=lake).rows == 1
    feed.send(hits(1, zip_code="2000"))
    assert pipeline.run(spark=lake, once=True).records == 1
    feed.send(hits(1, zip_code="3000"))
    assert pipeline.run_batch(spark=lake).records == 1
    assert pipeline.run_batch(spark=lake).records == 0
    assert sorted(each["zip"] for each in feed.rows()) == ["1000", "2000", "3000"]
    assert pipeline.verify().faults == ()


@pytest.mark.quick
def test_steps_deduplicate_join_a_table_run_python_and_select_by_sql(
    feed: Feed, lake: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / f"{feed.name}_steps.py").write_text(
        "from pyspark.sql import functions as sf\n\n\n"
        "@sf.udf('string')\ndef shout(text):\n    return text.upper()\n\n\n"
        "def named(rows, towns, ending='?'):\n"
        "    return rows.join(towns, 'zip').withColumn('town', sf.concat(shout('town'), sf.lit(ending)))\n"
    )
    (tmp_path / "towns.csv").write_text("8001,Zurich\n3011,Bern\n")
    town = {"format": "csv", "path": f"file:{tmp_path}/towns.csv", "schema_ddl": "zip STRING, town STRING"}
    pipeline = feed.pipeline(
        decode=DECODE,
        transform={
            "tables": {"towns": town},
            "watermark": LATE,
            "steps": {
                "once": {"deduplicate": ["zip", "hittime"]},
                "named": {"python": f"{feed.name}_steps:named", "options": {"ending": "!"}},
                "result": {"sql": "SELECT town, hittime FROM named"},
            },
        },
    )
    feed.send([*hits(1, 1, 2), *hits(1, zip_code="3011")], partition=0)
    pipeline.run(spark=lake, once=True)
    feed.send(hits(2, 3), partition=0)
    pipeline.run(spark=lake, once=True)
    assert sorted(each["town"] for each in feed.rows()) == ["BERN!", "ZURICH!", "ZURICH!", "ZURICH!"]
    assert pipeline.verify().faults == ()


def test_a_schema_change_restarts_the_query(feed: Feed, lake: SparkSession) -> None:
    wider = {**TRIP, "fields": [*TRIP["fields"], {"name": "tip", "type": ["null", "long"], "default": None}]}
    transform = {"sql": f"SELECT zone, count(*) AS trips FROM {feed.name} GROUP BY zone", "output_mode": "update"}
    sink = {"iceberg": {"table": feed.table, "mode": "upsert", "keys": ["zone"]}}
    feed.send(feed.avro([{"id": 1, "zone": "a"}, {"id": 2, "zone": "b"}]))
    pipeline, stop = feed.pipeline(transform=transform, sink=sink), threading.Event()
    message: list[str] = []
    seen: list[int] = []

    def on_batch(batch: FinishedBatch) -> None:
        if not seen:
            feed.send(feed.avro([{"id": 3, "zone": "a", "tip": 5}], wider))
        seen.append(batch.records)
        if sum(seen) >= 3:
            stop.set()

    pipeline.run(spark=lake, stop=stop, on_batch=on_batch, on_note=message.append)
    assert any("the query restarts to read the new schema" in each for each in message)
    assert {each["zone"]: each["trips"] for each in feed.rows()} == {"a": 2, "b": 1}
    assert pipeline.verify().faults == ()
