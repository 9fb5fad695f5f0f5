"""OpenLineage events fit the published schemas, and datasets have the names that OpenLineage defines."""

import json
import re
import uuid
from typing import Any

import pytest

from lakefeed.config.connections import S3, Catalog, Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ConfigError
from lakefeed.feed.progress import FinishedBatch
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.records.columns import RowColumn, columns_of
from lakefeed_observe.lineage.follower import SCHEMAS, SPEC, LineageRun, end_of, inputs, new_run_id, outputs
from lakefeed_observe.lineage.settings import Lineage
from tests.support.openlineage import DOCUMENTS, problems, validator
from tests.support.pipeline_text import feed_config

LOGIN = {"user": "u", "password": "secret-4711"}
KAFKA = {"kafka": {"bootstrap_servers": "SASL_SSL://b1:9093,b2:9093", "topics": ["trips"]}}
CONNECTIONS = Connections(
    s3=S3(region="eu-central-1"),
    catalogs={
        "lake": Catalog(type="jdbc", uri="jdbc:postgresql://db/catalog", warehouse="s3://lake/warehouse"),
        "hive": Catalog(type="hive", uri="thrift://meta:9083", warehouse="s3://lake/hive"),
        "rest": Catalog(type="rest", uri="https://catalog.example/api", warehouse="main"),
    },
)


def config(**blocks: Any) -> PipelineConfig:
    lineage = {"url": "http://marquez:5000", "namespace": "etl"}
    sink = {"iceberg": {"table": "lake.nyc.trips"}}
    return feed_config(**{"name": "taxi", "source": KAFKA, "sink": sink, "lineage": lineage, **blocks})


def run_of(pipeline: PipelineConfig, **settings: Any) -> LineageRun:
    lineage = pipeline.block(Lineage)
    assert lineage is not None
    return LineageRun(config=pipeline, connections=CONNECTIONS, lineage=lineage, **settings)


def monitor_after_a_batch() -> FeedMonitor:
    monitor = FeedMonitor("taxi")
    monitor.begin(sink="iceberg lake.nyc.trips", fence="1 a")
    span = OffsetRange("trips", 0, 0, 10)
    with monitor.batch(0, [span]):
        pass
    monitor.finish(FinishedBatch(batch_id=0, finished_at=1.0, seconds=1.0, records=10, rows=8, ranges=(span,)))
    monitor.columns = (RowColumn("id", "long"), RowColumn("place", "struct", (RowColumn("zone", "string"),)))
    return monitor


def test_every_schema_that_a_facet_names_is_in_the_tests() -> None:
    assert SPEC.partition("#")[0] in DOCUMENTS
    assert {address.partition("#")[0] for address in SCHEMAS.values()} == DOCUMENTS.keys() - {SPEC.partition("#")[0]}


@pytest.mark.parametrize("kind", ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"])
def test_each_event_fits_the_published_schema(kind: Any) -> None:
    monitor = monitor_after_a_batch()
    parent = {"url": "http://m", "parent": f"airflow/dag.task/{uuid.uuid4()}"}
    run = run_of(config(lineage=parent, dead_letters={"table": "lake.nyc.letters"}))
    monitor.ended(ConfigError("the table <script> is gone", where="lake", hint="make it"))
    event = run.event(kind, monitor.snapshot(), columns=monitor.columns, bytes_out=1234)
    assert problems(event) == []
    assert json.loads(json.dumps(event)) == event
    facets = event["run"]["facets"]
    assert ("errorMessage" in facets) == (kind == "FAIL")
    assert facets["parent"]["job"] == {"namespace": "airflow", "name": "dag.task"}
    [rows, letters] = event["outputs"]
    assert rows["outputFacets"]["outputStatistics"]["rowCount"] == 8
    assert rows["outputFacets"]["outputStatistics"]["size"] == 1234
    assert [field["name"] for field in rows["facets"]["schema"]["fields"]] == ["id", "place"]
    assert letters["outputFacets"] == {}
    assert event["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == 10


def test_the_validator_finds_wrong_events() -> None:
    event = run_of(config()).event("START", FeedMonitor("taxi").snapshot())
    assert problems(event) == []
    wrong: dict[str, Any] = {"eventType": "BEGIN", "eventTime": 7, "run": {"runId": 7}, "job": {"name": "x"}}
    for key, value in wrong.items():
        assert list(validator(SPEC).iter_errors({**event, key: value})), key
    event["job"]["facets"]["jobType"]["processingType"] = 7
    assert problems(event)


def test_a_run_id_is_a_uuid_of_version_7() -> None:
    ids = [uuid.UUID(new_run_id()) for _ in range(100)]
    assert {(one.version, one.variant) for one in ids} == {(7, uuid.RFC_4122)}
    assert len(set(ids)) == 100


def test_the_last_event_shows_how_the_run_ended() -> None:
    ended, failed, stopped = FeedMonitor("a"), FeedMonitor("b"), FeedMonitor("c")
    assert end_of(ended.snapshot()) is None
    ended.ended()
    failed.ended(ConfigError("wrong"))
    stopped.ended(KeyboardInterrupt())
    assert [end_of(monitor.snapshot()) for monitor in (ended, failed, stopped)] == ["COMPLETE", "FAIL", "ABORT"]


@pytest.mark.parametrize(
    ("sink", "names"),
    [
        ({"iceberg": {"table": "lake.nyc.trips"}}, [("s3://lake", "warehouse/nyc/trips")]),
        ({"iceberg": {"table": "hive.nyc.trips"}}, [("s3://lake", "hive/nyc.db/trips")]),
        ({"iceberg": {"table": "rest.a.b.trips"}}, [("https://catalog.example/api", "a.b.trips")]),
        ({"parquet": {"path": "s3a://lake/out/trips"}}, [("s3://lake", "out/trips")]),
        (
            {"jdbc": {"url": "jdbc:postgresql://db:5433/shop", "table": "trips", **LOGIN}},
            [("postgres://db:5433", "shop.public.trips")],
        ),
        ({"jdbc": {"url": "jdbc:postgresql://db/shop", "table": "s.t", **LOGIN}}, [("postgres://db:5432", "shop.s.t")]),
        ({"jdbc": {"url": "jdbc:mysql://db/shop", "table": "trips", **LOGIN}}, [("mysql://db:3306", "shop.trips")]),
        ({"elasticsearch": {"url": "http://es:9200", "index": "trips"}}, [("elasticsearch://es:9200", "trips")]),
        ({"kafka": {"topic": "out"}}, [("kafka://b1:9093", "out")]),
    ],
)
def test_datasets_have_the_names_that_openlineage_defines(sink: dict[str, Any], names: list[tuple[str, str]]) -> None:
    pipeline = config(sink=sink)
    assert [(one.namespace, one.name) for one in outputs(pipeline, CONNECTIONS)] == names
    assert [(one.namespace, one.name) for one in inputs(pipeline)] == [("kafka://b1:9093", "trips")]
    assert problems(run_of(pipeline).event("START", FeedMonitor("taxi").snapshot())) == []


def test_each_topic_and_each_table_is_a_dataset() -> None:
    source = {"kafka": {"bootstrap_servers": "b1:9093", "topics_pattern": "t.*"}}
    pipeline = config(source=source, sink={"iceberg": {"table": "lake.nyc.{topic}"}}, checkpoint="")
    monitor = FeedMonitor("taxi")
    monitor.observe_ends({("t-1", 0): 5, ("t2", 0): 5})
    event = run_of(pipeline, stays=False).event("RUNNING", monitor.snapshot())
    assert [one["name"] for one in event["outputs"]] == ["warehouse/nyc/t_1", "warehouse/nyc/t2"]
    assert [one["name"] for one in event["inputs"]] == ["t-1", "t2"]
    assert event["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert problems(event) == []


def test_events_contain_no_secrets() -> None:
    pipeline = config(sink={"jdbc": {"url": "jdbc:postgresql://db/shop?ssl=true", "table": "t", **LOGIN}})
    event = run_of(pipeline).event("START", FeedMonitor("taxi").snapshot())
    assert not re.search("secret-4711|ssl=true", json.dumps(event))


@pytest.mark.parametrize("parent", ["airflow", "a/b/c", "a/b/not-a-uuid-but-36-characters-long-x"])
def test_a_wrong_parent_is_refused(parent: str) -> None:
    with pytest.raises(ValueError, match="namespace/job/run id"):
        config(lineage={"url": "http://m", "parent": parent})


def test_an_event_has_the_columns_of_a_spark_schema() -> None:
    struct = {"type": "struct", "fields": [{"name": "zone", "type": "string"}]}
    fields = [
        {"name": "id", "type": "long"},
        {"name": "list", "type": {"type": "array", "elementType": struct}},
        {"name": "map", "type": {"type": "map", "keyType": "string", "valueType": "decimal(4,2)"}},
    ]
    assert columns_of({"fields": fields}) == (
        RowColumn("id", "long"),
        RowColumn("list", "array", (RowColumn("zone", "string"),)),
        RowColumn("map", "map"),
    )
