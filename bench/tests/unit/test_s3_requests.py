"""The tables look as the published ones, and show in capitals what cannot be believed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakefeed_bench.harness import document
from lakefeed_bench.minio import ApiCalls, Kept, Phases
from lakefeed_bench.s3_requests import CountedCase, case_of, case_report, comparison, size, workload_of

APIS = (
    ApiCalls(api="s3.HeadObject", received=52_224, sent=0, calls=200, errors=0),
    ApiCalls(api="s3.PutObject", received=1_181_116_006, sent=6_963, calls=63, errors=1),
)
MEASURED = CountedCase(
    manager="lakefeed",
    sink="parquet",
    versioned=True,
    apis=APIS,
    metered={"s3.HeadObject": 200, "s3.PutObject": 63},
    phases=Phases(batches=6, startup=13, first_batch=50, per_batch=40.0),
    kept=Kept(objects=79, versions=80, delete_markers=1, files=60),
    expected=6_000_000,
    rows=6_000_000,
    seconds=160.714,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (134, "134 B"), (7_680, "7.5 KiB"), (22_528, "22 KiB"), (1_181_116_006, "1.1 GiB")],
)
def test_sizes_are_written_as_published(count: int, text: str) -> None:
    assert size(count) == text


def test_the_table_has_the_published_columns() -> None:
    assert case_report(MEASURED).splitlines()[2:7] == [
        "API                             RX      TX      CALLS   ERRORS",
        "s3.HeadObject                   51 KiB  0 B     200     0",
        "s3.PutObject                    1.1 GiB 6.8 KiB 63      1",
        "",
        "Total: 263 CALLS, 1.1 GiB RX, 6.8 KiB TX - in 160.71s",
    ]


def test_a_case_reports_phases_leftovers_and_its_checks() -> None:
    text = case_report(MEASURED)
    assert "13 requests before the first batch's offsets, 50 in the first batch, 40.0 in each later one" in text
    assert "left: 79 objects in 80 versions, 1 delete markers" in text
    assert "6,000,000 rows landed, as in the topic; the JVM's meter agrees exactly" in text


def test_missing_rows_and_a_meter_that_differs_cannot_be_overlooked() -> None:
    wrong = replace(MEASURED, rows=5_999_999, metered={"s3.HeadObject": 199, "s3.PutObject": 63})
    assert not wrong.complete
    assert not wrong.meter_agrees
    text = case_report(wrong)
    assert "BUT THE TOPIC HAS 6,000,000" in text
    assert "DIFFERS: s3.HeadObject 199 by the meter, 200 in the trace" in text
    assert "5999999 OF 6000000" in comparison([wrong], workload_of("six"))


def test_all_cases_stand_beside_the_published_figures() -> None:
    lines = comparison([MEASURED], workload_of("six")).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert [cell.strip() for cell in lines[2].split("|")][1:10:8] == ["seeds: Spark 3.3, default", "912"]
    assert [cell.strip() for cell in lines[-1].split("|")][1:-1] == [
        *("lakefeed", "parquet", "versioned", "6", "60", "13", "50", "40.0", "263", "79", "80", "1", "all", "agrees")
    ]


def test_the_document_for_programs() -> None:
    found = document(MEASURED)
    assert {"manager", "sink", "versioned", "phases", "kept", "total", "meter_agrees", "complete"} <= found.keys()
    assert found["calls"] == {"s3.HeadObject": 200, "s3.PutObject": 63}
    phases = MEASURED.phases
    assert found["total"] == phases.startup + phases.first_batch + phases.per_batch * (phases.batches - 1)


def test_batches_take_a_little_more_than_their_share() -> None:
    # Spark shares a batch's records out by partition and rounds each share down.
    assert workload_of("six", rows=60_000).records_a_batch == 10_009
    assert workload_of("steady").records_a_batch == 100
    assert workload_of("steady", batches=50).rows == 5_000


def test_each_case_has_a_name_and_bucket_of_its_own() -> None:
    cases = [case_of(sink, kept, "spark") for sink in ("parquet", "iceberg") for kept in (False, True)]
    assert len({case.name for case in cases} | {case.bucket for case in cases}) == 4
