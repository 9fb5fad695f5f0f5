"""How a plan estimates its figures, and when it cannot."""

from typing import Any

import pytest

from lakefeed.offsets.ranges import OffsetRange
from lakefeed.operations.plan.estimates import Batches, Estimates, estimates, total
from lakefeed.operations.plan.history import Past, PastBatch, Sample
from tests.support.pipeline_text import feed_config

ICEBERG = {"iceberg": {"table": "lake.a.b"}}
BATCHES = Batches(
    first=(OffsetRange("t", 0, 0, 30), OffsetRange("t", 1, 0, 10), OffsetRange("t", 2, 5, 5)),
    backlog=(OffsetRange("t", 0, 0, 90), OffsetRange("t", 1, 0, 10), OffsetRange("t", 2, 5, 5)),
    count=3,
    first_tasks=2,
    tasks=4,
)


def past(*batches: tuple[float, str, int, int], deletes_metadata: bool = False) -> Past:
    return Past(
        batches=tuple(
            PastBatch(at=at, fence=fence, records=records, files=files, bytes=records * 8, dead_letters=0)
            for at, fence, records, files in batches
        ),
        deletes_metadata=deletes_metadata,
    )


def found(
    sink: dict[str, Any] = ICEBERG, known: Past | None = None, *, repartitioned: bool = False, state: bool = False
) -> Estimates:
    return estimates(
        feed_config(sink=sink),
        batches=BATCHES,
        past=known or Past(),
        sample=Sample(records=10, bytes=1000),
        is_laid_out_anew=repartitioned,
        has_state=state,
    )


def figures(estimate: Any) -> tuple[Any, Any]:
    return estimate.first, estimate.all


def test_each_task_writes_a_file_of_a_new_table_without_partitions() -> None:
    each = found()
    assert figures(each.records) == (40, 100)
    assert figures(each.bytes) == (4_000, 10_000)
    assert figures(each.files) == (2, 4)
    assert figures(each.requests) == (2 + 5, 4 + 3 * 5)
    assert figures(each.stored) == figures(each.seconds) == (None, None)
    assert "no batch yet" in each.seconds.rests_on


def test_a_parquet_sink_writes_a_log_instead_of_metadata() -> None:
    assert figures(found({"parquet": {"path": "s3a://bucket/p"}}).requests) == (2 + 3, 4 + 3 * 3)


@pytest.mark.parametrize(
    "sink",
    [
        {"iceberg": {"table": "lake.a.b", "partition_by": ["topic"]}},
        {"parquet": {"path": "s3a://b-1/p", "partition_by": ["x"]}},
    ],
)
def test_for_a_new_partitioned_table_the_number_of_files_is_unknown(sink: dict[str, Any]) -> None:
    each = found(sink)
    assert figures(each.files) == figures(each.requests) == (None, None)
    assert each.files.rests_on.startswith("not known")


def test_estimates_use_past_batches_unless_the_layout_changes() -> None:
    known = past((10.0, "1 a", 100, 3), (20.0, "1 a", 100, 4), (21.0, "2 b", 10, 1), deletes_metadata=True)
    each = found({"iceberg": {"table": "lake.a.b", "partition_by": ["topic"]}}, known)
    assert figures(each.files) == (3, 8)
    assert figures(each.requests) == (3 + 6, 8 + 3 * 6)
    assert figures(each.stored) == (40 * 8, 100 * 8)
    # Seconds are measured between batches of one driver, because the next driver may have started days later.
    assert figures(each.seconds) == (4.0, 10.0)
    repartitioned = found({"iceberg": {"table": "lake.a.b", "partition_by": ["topic"]}}, known, repartitioned=True)
    assert figures(repartitioned.files) == (None, None)
    assert "layout of the table changes" in repartitioned.files.rests_on


def test_the_requests_of_upserts_are_unknown() -> None:
    sink = {"iceberg": {"table": "lake.a.b", "mode": "upsert", "keys": ["id"]}}
    known = past((10.0, "1 a", 100, 3))
    assert figures(found(sink).files) == (None, None)
    assert figures(found(sink, known).files) == (3, 9)
    assert figures(found(sink, known).requests) == (3 + 7, 9 + 3 * 7)
    for reading in ({"key_index_mb": 0}, {"write": "copy-on-write"}):
        assert figures(found({"iceberg": {**sink["iceberg"], **reading}}, known).requests) == (None, None)


def test_the_requests_of_a_query_with_state_are_unknown() -> None:
    assert figures(found(state=True).files) == (None, None)
    known = past((10.0, "1 a", 100, 3))
    assert figures(found(known=known, state=True).files) == (3, 9)
    assert figures(found(known=known, state=True).requests) == (None, None)


@pytest.mark.parametrize(
    ("sink", "files", "requests"),
    [
        ({"kafka": {"topic": "out"}}, (0, 0), (2, 6)),
        ({"memory": {}}, (0, 0), (2, 6)),
        ({"format": {"name": "delta", "path": "s3a://lake/p"}}, (None, None), (None, None)),
    ],
)
def test_files_and_requests_of_kafka_memory_and_format_sinks_are_estimated(
    sink: dict[str, Any], files: Any, requests: Any
) -> None:
    each = found(sink)
    assert figures(each.files) == files
    assert figures(each.requests) == requests


def test_a_sum_with_an_unknown_figure_is_unknown() -> None:
    one, other = found(), found({"iceberg": {"table": "lake.a.b", "partition_by": ["topic"]}})
    both = total([one, one])
    assert (figures(both.records), figures(both.files)) == ((80, 200), (4, 8))
    mixed = total([one, other])
    assert figures(mixed.files) == (None, None)
    assert mixed.files.rests_on == "not known for 1 of 2 tables"


def test_a_run_without_backlog_costs_nothing() -> None:
    nothing = Batches(first=(), first_tasks=0, backlog=(), count=0, tasks=0)
    each = estimates(
        feed_config(), batches=nothing, past=Past(), sample=Sample(), is_laid_out_anew=False, has_state=False
    )
    assert {figures(estimate) for _, estimate in each.named()} == {(0, 0)}
