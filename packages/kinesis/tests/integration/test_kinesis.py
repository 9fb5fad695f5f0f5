"""Records of a Kinesis stream land once, although shards split, drivers die, and checkpoints are lost."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import AccessDenied, ConfigError, LakefeedError, RecordsLost, ResourceMissing
from lakefeed.pipeline import Pipeline, RunSummary
from lakefeed_local.stack import Endpoints
from tests.support.deaths import dying
from tests.support.feed import Feed
from tests.support.servers.kinesis import Kinesis, kinesis

EXAMPLES = Path(__file__).parents[4] / "examples"
EXAMPLE, HITS = EXAMPLES / "kinesis" / "pipeline.yaml", EXAMPLES / "data" / "hits.jsonl"
COLUMNS = {"json": {"schema_ddl": "id BIGINT, zip STRING"}}


@pytest.fixture(scope="module")
def server() -> Iterator[Kinesis]:
    with kinesis() as running:
        yield running


class StreamFeed(Feed):
    """A feed that reads its own Kinesis stream."""

    kinesis: Kinesis

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **self.kinesis.environment}

    def put(self, *ids: int) -> None:
        self.kinesis.put(self.name, [{"id": each, "zip": f"{each:04}"} for each in ids])

    def job(self, **blocks: Any) -> Pipeline:
        source = {"stream": self.name, **blocks.pop("kinesis", {})}
        return self.pipeline(**{"source": {"kinesis": source}, "decode": COLUMNS, **blocks})

    def ids(self) -> list[int]:
        return sorted(each["id"] for each in self.rows())


@pytest.fixture
def stream(stack: Endpoints, server: Kinesis, tmp_path: Path) -> StreamFeed:
    feed = StreamFeed(stack, tmp_path)
    feed.kinesis = server
    server.create(feed.name)
    return feed


@pytest.mark.quick
def test_a_split_stream_lands_once_and_a_lost_checkpoint_is_recreated(stream: StreamFeed, lake: SparkSession) -> None:
    stream.put(*range(10))
    stream.job().run(spark=lake, once=True)
    stream.put(10, 11)
    stream.kinesis.split(stream.name)
    stream.put(*range(12, 20))
    notes: list[str] = []
    restarted = stream.job(checkpoint=f"{stream.checkpoint}-2")
    summary = restarted.run(spark=lake, once=True, on_note=notes.append)
    assert "resumes at the table's position" in notes[0]
    assert summary.records == 10
    assert stream.ids() == list(range(20))


@pytest.mark.slow
def test_each_record_lands_once_after_splits_merges_crashes_and_a_lost_checkpoint(
    stream: StreamFeed, lake: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = stream.job(decode={**COLUMNS, "metadata": ["topic", "partition", "offset", "key", "sequence_number"]})

    def run() -> RunSummary:
        return job.run(spark=lake, once=True)

    stream.put(*range(20))
    assert run().records == 20
    stream.put(*range(20, 30))
    stream.kinesis.split(stream.name)
    stream.put(*range(30, 50))
    with monkeypatch.context() as crash:
        dying(crash, before=True)
        with pytest.raises(LakefeedError):
            run()
    stream.kinesis.merge(stream.name)
    stream.put(*range(50, 60))
    with monkeypatch.context() as crash:
        dying(crash)
        with pytest.raises(LakefeedError):
            run()
    run()
    assert stream.ids() == list(range(60))

    stream.kinesis.split(stream.name)
    stream.put(*range(60, 70))
    notes: list[str] = []
    restarted = stream.job(
        decode=job.config.decode.model_dump(by_alias=True, exclude_none=True), checkpoint=f"{stream.checkpoint}-2"
    )
    restarted.run(spark=lake, once=True, on_note=notes.append)
    assert "resumes at the table's position" in notes[0]
    assert stream.ids() == list(range(70))

    found = restarted.verify(deep=True)
    assert found.faults == ()
    assert found.records == found.rows == 70
    rows = stream.rows()
    assert len({each["kafka_sequence_number"] for each in rows}) == 70
    assert all(json.loads(each["kafka_key"].decode().replace("'", '"'))["id"] == each["id"] for each in rows)
    for shard in {each["kafka_partition"] for each in rows}:
        offsets = sorted(each["kafka_offset"] for each in rows if each["kafka_partition"] == shard)
        assert offsets == list(range(len(offsets)))
    assert len({each["kafka_partition"] for each in rows}) > 4


@pytest.mark.slow
def test_every_record_is_read_despite_throttled_expired_and_empty_answers(
    stream: StreamFeed, lake: SparkSession
) -> None:
    letters = f"lake.{stream.name}.letters"
    job = stream.job(kinesis={"max_records_per_batch": 6}, dead_letters={"table": letters})
    stream.put(*range(30))
    stream.kinesis.put(stream.name, [b"no json"])
    stream.kinesis.refusals += ["ProvisionedThroughputExceededException", "ExpiredIteratorException"]
    stream.kinesis.empty_pages = 3
    sizes: list[int] = []
    summary = job.run(spark=lake, once=True, on_batch=lambda batch: sizes.append(batch.records))
    assert stream.ids() == list(range(30))
    assert summary.dead_letters == 1
    assert sum(sizes) == 31
    assert max(sizes) <= 6
    (letter,) = stream.rows(letters)
    assert letter["value"] == b"no json"
    assert letter["headers"][0]["key"] == "sequence_number"


@pytest.mark.slow
def test_the_feed_stops_at_expired_records_until_the_loss_is_accepted(stream: StreamFeed, lake: SparkSession) -> None:
    job = stream.job()
    stream.put(*range(10))
    job.run(spark=lake, once=True)
    stream.kinesis.remove_first(stream.name)
    stream.put(10, 11)
    job.run(spark=lake, once=True)
    assert stream.ids() == list(range(12))

    stream.kinesis.outlive(stream.name)
    stream.put(12, 13, 14)
    with pytest.raises(RecordsLost, match="may have been removed before it was read") as refused:
        job.run(spark=lake, once=True)
    assert "--accept-loss" in str(refused.value)
    notes: list[str] = []

    def message(note: str) -> None:
        notes.append(note)
        stream.kinesis.keep(stream.name, hours=24)

    job.run(spark=lake, once=True, accept_loss=True, on_note=message)
    assert "resumes although records are lost" in notes[0]
    assert stream.ids() == list(range(15))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("later", "message"), [((), "there are"), (range(10, 60), "they end at")], ids=["short", "other"]
)
def test_the_feed_stops_if_records_of_a_planned_batch_no_longer_exist(
    stream: StreamFeed, lake: SparkSession, monkeypatch: pytest.MonkeyPatch, later: Sequence[int], message: str
) -> None:
    job = stream.job()
    stream.put(*range(10))
    with monkeypatch.context() as crash:
        dying(crash, before=True)
        with pytest.raises(LakefeedError):
            job.run(spark=lake, once=True)
    stream.kinesis.remove_first(stream.name)
    stream.put(*later)
    with pytest.raises(RecordsLost, match=f"planned for a batch {message}"):
        job.run(spark=lake, once=True)


@pytest.mark.slow
def test_the_feed_stops_at_a_recreated_stream_until_the_loss_is_accepted(
    stream: StreamFeed, lake: SparkSession
) -> None:
    job = stream.job()
    stream.put(*range(5))
    job.run(spark=lake, once=True)
    stream.kinesis.delete(stream.name)
    with pytest.raises(ResourceMissing, match="no such stream"):
        job.run(spark=lake, once=True)
    stream.kinesis.create(stream.name, shards=1)
    stream.put(*range(5, 9))
    with pytest.raises(RecordsLost, match="recreated"):
        job.run(spark=lake, once=True)
    job.run(spark=lake, once=True, accept_loss=True)
    assert stream.ids() == list(range(9))


def test_refused_credentials_are_reported_and_not_stored(stream: StreamFeed, lake: SparkSession) -> None:
    keys = {"access_key": "kinesis-key", "secret_key": "never-shown"}
    job = stream.job(kinesis={**keys, "start": "latest"})
    stream.put(0)
    stream.kinesis.refusals += ["UnrecognizedClientException"] * 2
    with pytest.raises(AccessDenied, match="Kinesis refuses the credentials"):
        job.run(spark=lake, once=True)
    stream.kinesis.refusals.clear()
    stream.put(1, 2)
    job.run(spark=lake, once=True)
    assert stream.ids() == [1, 2]
    settings = {**dict(lake.sparkContext.getConf().getAll()), **lake.conf.getAll}
    assert not [key for key, value in settings.items() if "never-shown" in value]
    log = lake.read.text(f"{stream.checkpoint}/offsets").collect()
    assert log
    assert not [each for each in log if "kinesis-key" in each.value]
    assert "never-shown" not in str(job.config)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ({"decode": {"json": {"schema": "sample"}}}, "sample reads topics of Kafka only"),
        ({"dead_letters": {"topic": "letters"}}, "dead_letters.topic requires source.kafka"),
        ({"sink": {"iceberg": {"table": "lake.a.b", "mode": "upsert", "keys": ["id"]}}}, "order_by"),
        ({"kinesis": {"access_key": "only"}}, "belong together"),
        ({"kinesis": {"stream": "arn:aws:kinesis:stream/x"}}, "stream's name"),
    ],
)
def test_blocks_that_kinesis_does_not_support_are_refused(
    stream: StreamFeed, blocks: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        stream.job(**blocks)


@pytest.mark.slow
def test_the_kinesis_example_lands_hits(stream: StreamFeed, lake: SparkSession) -> None:
    stream.kinesis.put(stream.name, map(json.loads, HITS.read_text().splitlines()))
    job = Pipeline.from_file(
        EXAMPLE,
        overrides=[
            f"source.kinesis.stream={stream.name}",
            f"sink.iceberg.table={stream.table}",
            f"checkpoint={stream.checkpoint}",
        ],
        environment=stream.environment,
    )
    job.run(spark=lake, once=True)
    rows = stream.rows()
    assert len(rows) == len(HITS.read_text().splitlines())
    assert all(each["isp"] and each["kafka_sequence_number"] for each in rows)


@pytest.mark.slow
def test_a_split_shard_is_read_before_its_children(stream: StreamFeed, lake: SparkSession) -> None:
    stream.put(*range(8))
    stream.kinesis.split(stream.name)
    stream.put(*range(8, 20))
    stream.job().run(spark=lake, once=True)
    assert stream.ids() == list(range(20))
    summaries = lake.table(f"{stream.table}.snapshots").orderBy("committed_at").select("summary").collect()
    ranges = [json.loads(each.summary["lakefeed.ranges"]) for each in summaries if "lakefeed.ranges" in each.summary]
    shards = [set(each[stream.name]["ranges"]) for each in ranges]
    assert shards[0] <= {"0", "1"}
    assert {"2", "3"} <= shards[-1]
