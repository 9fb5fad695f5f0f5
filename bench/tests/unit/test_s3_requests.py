"""The report of ``lakefeed-bench s3-requests``: its tables, and mismatches in capitals."""

from __future__ import annotations

from dataclasses import replace

from lakefeed_bench.harness import document
from lakefeed_bench.minio import ApiCalls, Kept, Phases
from lakefeed_bench.s3_requests import WORKLOADS, CountedCase, case_of, case_report, comparison

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


def test_the_report_of_a_case_shows_whether_the_two_counts_agree() -> None:
    text = case_report(MEASURED)
    assert [line.split() for line in text.splitlines()[2:5]] == [
        ["api", "received", "sent", "calls", "errors"],
        ["s3.HeadObject", "52,224", "0", "200", "0"],
        ["s3.PutObject", "1,181,116,006", "6,963", "63", "1"],
    ]
    assert "6,000,000 rows landed, as in the topic; the JVM counted the same requests" in text


def test_missing_rows_and_different_counts_are_reported_in_capitals() -> None:
    wrong = replace(MEASURED, rows=5_999_999, metered={"s3.HeadObject": 199, "s3.PutObject": 63})
    assert not wrong.complete
    assert not wrong.meter_agrees
    text = case_report(wrong)
    assert "BUT THE TOPIC HAS 6,000,000" in text
    assert "DIFFERS: s3.HeadObject: 199 in the JVM, 200 in the trace" in text
    assert comparison([wrong], WORKLOADS["six"]).splitlines()[1].split()[-2:] == ["NO", "NO"]


def test_the_comparison_shows_all_cases_and_the_published_figures() -> None:
    lines = comparison([MEASURED], WORKLOADS["six"]).splitlines()
    assert lines[1].split() == [
        *("lakefeed", "parquet", "versioned", "6", "60", "13", "50", "40.00", "263", "79", "80", "1", "yes", "yes")
    ]
    assert "published: Spark 3.3, default, parquet: 152.0 requests per batch, 912 in all" in lines[3]


def test_the_json_of_a_case_has_the_counts_of_requests() -> None:
    written = document(MEASURED)
    assert {"manager", "sink", "versioned", "phases", "kept", "total", "meter_agrees", "complete"} <= written.keys()
    assert written["calls"] == {"s3.HeadObject": 200, "s3.PutObject": 63}
    phases = MEASURED.phases
    assert written["total"] == phases.startup + phases.first_batch + phases.per_batch * (phases.batches - 1)


def test_the_record_limit_compensates_the_rounding_of_spark() -> None:
    # Spark divides maxOffsetsPerTrigger among the partitions, and rounds each share down.
    assert replace(WORKLOADS["six"], rows=60_000).records_a_batch == 10_009
    assert WORKLOADS["steady"].records_a_batch == 100


def test_each_case_has_its_own_name_and_bucket() -> None:
    cases = [case_of(sink, versioned, "spark") for sink in ("parquet", "iceberg") for versioned in (False, True)]
    assert len({case.name for case in cases} | {case.bucket for case in cases}) == 4
