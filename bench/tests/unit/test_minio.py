"""MinIO's trace gives the requests, their numbers by API and by phase, and the versions in a bucket."""

from __future__ import annotations

import json
from typing import Any

from lakefeed_bench.minio import (
    ApiCalls,
    Kept,
    Phases,
    Request,
    as_traced,
    between,
    by_api,
    count_versions,
    parse,
    phases,
)


def printed(api: str, path: str, *, at: float, status: int = 200) -> str:
    """Return a line of the trace for a request; blanks before it keep the connection of MinIO open."""
    entry = {
        "type": 4,
        "nodename": "127.0.0.1:30329",
        "funcname": f"s3.{api}",
        "time": f"2026-11-21T16:00:{at:012.9f}Z",
        "path": path,
        "dur": 9742816,
        "http": {
            "request": {"method": "PUT", "client": "127.0.0.1"},
            "response": {"statuscode": status},
            "stats": {"inputbytes": 100, "outputbytes": 10, "timetofirstbyte": 9694854},
        },
    }
    return f"  {json.dumps(entry)}\n"


PRINTED = printed("PutObject", "/lake/a/x", at=2) + printed("HeadObject", "/lake/a/x", at=1, status=404)


def traced(*requests: tuple[str, str]) -> list[Request]:
    """Return requests for objects in the bucket ``lake``, one per second."""
    return parse("".join(printed(api, f"/lake/{key}", at=at) for at, (api, key) in enumerate(requests)))


def test_parse_orders_requests_by_their_start() -> None:
    first, second = parse(PRINTED)
    assert (first.api, first.path, first.status) == ("s3.HeadObject", "/lake/a/x", 404)
    assert (second.api, second.status, second.received, second.sent) == ("s3.PutObject", 200, 100, 10)
    assert first.at < second.at


def test_parse_ignores_an_incomplete_line() -> None:
    assert len(parse(PRINTED[:-30])) == 1
    assert parse("  ") == []


def test_only_requests_between_the_two_marks_are_returned() -> None:
    requests = parse(
        printed("HeadBucket", "/mark-a/", at=1, status=403)
        + printed("PutObject", "/lake/x", at=2)
        + printed("HeadBucket", "/mark-b/", at=3, status=403)
        + printed("GetObject", "/lake/x", at=4)
    )
    assert [request.api for request in between(requests, begin="mark-a", end="mark-b")] == ["s3.PutObject"]


def test_requests_with_a_status_from_499_on_count_as_errors() -> None:
    requests = parse(
        printed("PutObject", "/lake/x", at=1)
        + printed("PutObject", "/lake/x", at=2, status=412)
        + printed("PutObject", "/lake/x", at=3, status=503)
        + printed("HeadObject", "/lake/x", at=4, status=404)
    )
    assert by_api(requests) == [
        ApiCalls(api="s3.HeadObject", received=100, sent=10, calls=1, errors=0),
        ApiCalls(api="s3.PutObject", received=300, sent=30, calls=3, errors=1),
    ]


def test_requests_are_divided_into_phases_at_the_writes_of_offsets() -> None:
    requests = traced(
        ("HeadObject", "check/metadata"),
        ("PutObject", "check/metadata"),
        ("HeadObject", "check/offsets/0"),
        ("PutObject", "check/offsets/0"),
        ("PutObject", "trips/part-0"),
        ("PutObject", "check/commits/0"),
        ("PutObject", "check/offsets/1"),
        ("PutObject", "check/commits/1"),
        ("PutObject", "check/offsets/2"),
        ("PutObject", "trips/part-1"),
        ("PutObject", "check/commits/2"),
    )
    assert phases(requests, checkpoint="s3a://lake/check") == Phases(batches=3, startup=3, first_batch=3, per_batch=2.5)


def test_a_renamed_temporary_file_counts_once() -> None:
    requests = traced(
        ("PutObject", "check/offsets/.0.3c1f.tmp"),
        ("CopyObject", "check/offsets/0"),
        ("DeleteObject", "check/offsets/.0.3c1f.tmp"),
        ("PutObject", "check/offsets/.1.77aa.tmp"),
        ("CopyObject", "check/offsets/1"),
    )
    assert phases(requests, checkpoint="s3a://lake/check") == Phases(batches=2, startup=0, first_batch=3, per_batch=2.0)


def test_a_stream_without_batches_has_only_the_startup_phase() -> None:
    requests = traced(("HeadObject", "check/metadata"))
    assert phases(requests, checkpoint="s3a://lake/check") == Phases(batches=0, startup=1, first_batch=0, per_batch=0.0)


def test_as_traced_renames_operations_and_omits_zeros() -> None:
    metered = {"DeleteObjects": 2, "CreateMultipartUpload": 1, "UploadPart": 3, "PutObject": 4, "GetObject": 0}
    assert as_traced(metered) == {
        "s3.DeleteMultipleObjects": 2,
        "s3.NewMultipartUpload": 1,
        "s3.PutObject": 4,
        "s3.PutObjectPart": 3,
    }


def test_count_versions_separates_versions_and_delete_markers() -> None:
    def version(key: str, newest: bool = True) -> dict[str, Any]:
        return {"Key": key, "IsLatest": newest}

    pages = [
        {"Versions": [version("check/.0.tmp", False), version("check/0")], "DeleteMarkers": [version("check/.0.tmp")]},
        {"Versions": [version("trips/part-0.parquet"), version("trips/part-0.parquet", False)]},
    ]
    assert count_versions(pages) == Kept(objects=2, versions=4, delete_markers=1, files=1)
