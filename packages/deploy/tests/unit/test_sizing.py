"""The computed size of a feed equals sizes computed by hand, up to 10,000 partitions and 1,000 topics."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.ledger.continuity import check_commit
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed_deploy.sizing import FeedLoad, MachineSpeed, Sizing, parse_rate, size

MEASURED = MachineSpeed(
    rows_per_cpu_second=250_000.0,
    record_bytes=150.0,
    stored_bytes=20.0,
    server_cpu={"kafka": 2e-7, "minio": 1e-7},
    batch_overhead=0.3,
    peak_mb=1600.0,
    cores=2,
    records=10_000_000,
)


def pipeline(**blocks: Any) -> PipelineConfig:
    kafka = {"bootstrap_servers": "broker:9092", "topics": ["trips"]}
    return PipelineConfig.model_validate(
        {
            "name": "trips",
            "source": {"kafka": kafka},
            "decode": {"avro": {"registry": "http://registry:8081"}},
            "sink": {"iceberg": {"table": "lake.taxi.trips"}},
            "checkpoint": "s3a://lake/checkpoints/trips",
            **blocks,
        }
    )


def sized(rate: float, *, topics: int | None = None, partitions: int | None = None, **blocks: Any) -> Sizing:
    load = FeedLoad.of(rate, pipeline(**blocks), topics=topics, partitions=partitions)
    return size(load, MEASURED)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1_000_000/s", 1_000_000.0),
        ("1M/s", 1_000_000.0),
        ("1,000,000 / sec", 1_000_000.0),
        ("50k/s", 50_000.0),
        ("112M/10min", 112_000_000 / 600),
        ("112_000_000/10min", 112_000_000 / 600),
        ("3600/h", 1.0),
        ("0.5/s", 0.5),
    ],
)
def test_a_rate_is_parsed(text: str, rate: float) -> None:
    assert parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "fast", "100", "0/s", "1/0s", "-1/s", "1/fortnight", "_/s", "1e6/s", "1/s/s"])
def test_a_text_that_is_not_a_rate_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a rate"):
        parse_rate(text)


@given(number=st.integers(1, 10**12), count=st.integers(1, 10**4), unit=st.sampled_from(["s", "min", "h", "day"]))
def test_any_rate_is_parsed(number: int, count: int, unit: str) -> None:
    seconds = {"s": 1, "min": 60, "h": 3600, "day": 86_400}[unit]
    assert parse_rate(f"{number:,}/{count}{unit}") == pytest.approx(number / count / seconds)


def test_the_size_for_two_cores_equals_a_calculation_by_hand() -> None:
    found = sized(112_000_000 / 600)
    # 186,667 records/s / 250,000 rows per CPU second / 70 % = 1.07, so 2 cores.
    assert found["cores"] == 2
    assert found["executors"] == 1
    # 28 MB/s / 10 MB/s per partition are 3 partitions, rounded up to a multiple of the 2 slots.
    assert found["partitions"] == 4
    assert found["trigger"] == 60
    assert found["records a batch"] == 11_200_000
    assert found["files an hour"] == 4 * 60
    # 60 batches an hour, each with 4 data files, 3 metadata files, 1 delete request and 2 entries of the checkpoint.
    assert found["S3 requests an hour"] == (4 + 4 + 2) * 60
    assert found["cores of kafka"] == pytest.approx(0.04)
    assert found.warnings == ()


def test_the_size_for_a_million_records_a_second_equals_a_calculation_by_hand() -> None:
    found = sized(1_000_000.0)
    assert found["cores"] == 6
    assert found["executors"] == 2
    assert found["partitions"] == 16
    # 8 slots read 2,000,000 records/s, twice the input, so the backlog of an hour is read within an hour.
    assert found["an hour's backlog"] == 3600
    assert found["from Kafka"] == 150.0
    assert found["to the store"] == 20.0


@pytest.mark.waits
def test_ten_thousand_partitions_cause_warnings_about_metadata_and_files() -> None:
    found = sized(1_000_000.0, partitions=10_000)
    assert found["partitions"] == 10_000
    assert 100_000 < found["ledger"] < 1_000_000
    # Each commit writes a metadata file with a week of snapshots, and each snapshot has all offset ranges.
    assert found["metadata file"] == pytest.approx(7 * 24 * 60 * (found["ledger"] + 1000))
    assert any("metadata file" in warning for warning in found.warnings)
    assert any("files are small" in warning for warning in found.warnings)
    calm = sized(1_000_000.0, partitions=10_000, trigger="10 minutes", upkeep={"expire": {"older_than": "1 hours"}})
    assert not any("metadata" in warning for warning in calm.warnings)
    assert calm["driver memory"] < found["driver memory"]


def test_a_thousand_topics_with_a_table_each_are_sized() -> None:
    kafka = {"bootstrap_servers": "broker:9092", "topics_pattern": "t-.*"}
    many: dict[str, Any] = {
        "source": {"kafka": kafka},
        "sink": {"iceberg": {"table": "lake.taxi.{topic}"}},
        "checkpoint": "",
    }
    found = sized(1_000_000.0, topics=1000, **many)
    assert found["partitions"] == 1000
    # 4 tables commit at once, in 250 rounds: this takes 75 s, longer than the file's trigger of a minute.
    assert found["trigger"] > 75
    assert any(warning.startswith("trigger:") for warning in found.warnings)
    assert found["S3 requests an hour"] == pytest.approx((1000 + 4 * 1000) * 3600 / found["trigger"], abs=1)
    # Each table stores the ranges of one partition.
    assert found["ledger"] < 500


def test_too_few_partitions_cause_a_warning() -> None:
    found = sized(1_000_000.0, partitions=2)
    assert any("too few" in warning for warning in found.warnings)


@given(rate=st.floats(1, 1e8), partitions=st.integers(1, 2000))
def test_a_size_that_is_too_small_for_the_rate_causes_a_warning(rate: float, partitions: int) -> None:
    found = sized(rate, partitions=partitions)
    carries = min(max(found["cores"], 1), partitions) * MEASURED.rows_per_cpu_second > rate
    assert carries or found.warnings
    assert found["max_records_per_batch"] >= found["records a batch"]
    assert found["trigger"] >= 1


def test_a_ledger_of_ten_thousand_partitions_is_checked_within_a_second() -> None:
    def commit(number: int) -> Commit:
        spans = (OffsetRange("trips", part, number * 100, number * 100 + 100) for part in range(10_000))
        return Commit(feed="trips", batch_id=number, ranges=OffsetRanges(tuple(spans), {"trips": "x" * 22}))

    first, second = commit(1), commit(2)
    began = time.process_time()
    read = Commit.of(7, first.properties())
    assert check_commit(second, Position(ranges=read.ranges, snapshot_id=7), where="here") is CommitCheck.NEW
    assert time.process_time() - began < 1.0
    assert read.ranges == first.ranges


def test_the_document_has_a_reason_for_every_figure() -> None:
    document = json.loads(json.dumps(sized(1_000_000.0).as_dict()))
    assert document["records_per_second"] == 1_000_000
    assert document["figures"]["cores"]["value"] == 6
    assert all(figure["rests_on"] for figure in document["figures"].values())
    assert any("proportion to cores" in text for text in document["assumptions"])


def test_loads_sinks_and_sources_that_cannot_be_sized_are_refused() -> None:
    kafka = {"bootstrap_servers": "broker:9092", "topics_pattern": "t-.*"}
    with pytest.raises(ConfigError, match="the number of topics"):
        sized(1.0, source={"kafka": kafka})
    with pytest.raises(ConfigError, match="cannot have only 3 partitions"):
        sized(1.0, topics=5, partitions=3)
    with pytest.raises(ConfigError, match="more than one feed can have"):
        sized(1.0, partitions=99_999_999_999)
    with pytest.raises(ConfigError, match="more than one feed can have"):
        sized(1e30)
    with pytest.raises(ConfigError, match=r"into sink\.console cannot be sized"):
        sized(1.0, sink={"console": {}}, checkpoint="")


def bench(**changes: Any) -> dict[str, Any]:
    run = {"rows": 100, "stored_bytes": 2000, "server_cpu_seconds": {"kafka": 1.0}, "batch_overhead_seconds": 0.2}
    way = {"way": "lakefeed-iceberg", "rows_per_cpu_second": 250_000, "peak_rss_mb": 900, "rows_equal": True}
    return {"records": 100, "record_bytes": 150.0, "cores": 2, "ways": [{**way, "runs": [run, run], **changes}]}


def test_the_output_of_the_bench_is_parsed(tmp_path: Path) -> None:
    file = tmp_path / "throughput.json"
    file.write_text(json.dumps(bench()))
    found = MachineSpeed.read(file, sink="iceberg")
    assert found.stored_bytes == 20.0
    assert found.server_cpu == {"kafka": 0.01}
    assert found.batch_overhead == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "is not the output of"),
        ("[1", "is not the output of"),
        (json.dumps(bench(way="seed")), "has not measured feeds into iceberg"),
        (json.dumps(bench(rows_equal=False)), "differed from its topic"),
        (json.dumps(bench(runs=[])), "is not the output of"),
    ],
)
def test_a_file_that_is_not_a_result_of_the_bench_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "throughput.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        MachineSpeed.read(file, sink="iceberg")


def test_the_size_is_refused_without_a_result_of_the_bench(tmp_path: Path) -> None:
    with pytest.raises(ResourceMissing, match="has not been measured"):
        MachineSpeed.read(tmp_path / "none.json", sink="iceberg")


def test_the_figures_on_the_page_are_the_computed_figures() -> None:
    docs = Path(__file__).parents[4] / "docs"
    machine = MachineSpeed.read(docs / "size-a-feed.json", sink="iceberg")
    kafka = {"bootstrap_servers": "broker:9092", "topics_pattern": "trips-.*"}
    sink = {"iceberg": {"table": "lake.taxi.{topic}"}}
    one, many = pipeline(name="taxi"), pipeline(name="taxi", source={"kafka": kafka}, sink=sink, checkpoint="")
    loads = (
        FeedLoad.of(112_000_000 / 600, one, topics=None, partitions=None),
        FeedLoad.of(1e6, one, topics=None, partitions=None),
        FeedLoad.of(1e6, one, topics=None, partitions=10_000),
        FeedLoad.of(1e6, many, topics=1000, partitions=None),
    )
    found = [size(load, machine) for load in loads]
    lines = (docs / "size-a-feed.md").read_text().splitlines()
    names = ("cores", "partitions", "trigger", "ledger", "metadata file", "driver memory", "files an hour")
    for name in (*names, "file size", "S3 requests an hour"):
        expected = f"| {name} | {' | '.join(f'{round(sizing[name]):,}' for sizing in found)} |"
        assert expected in lines
