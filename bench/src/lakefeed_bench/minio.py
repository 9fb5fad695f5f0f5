"""Count the S3 requests of a measurement in MinIO's trace, and the objects that its bucket has afterwards."""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from lakefeed.errors import Unreachable
from lakefeed_bench.harness import Bench

_TRACE = "/minio/admin/v3/trace?s3=true"
"""The API of ``mc admin trace``: MinIO sends a line of JSON when a request ends, and a blank every second."""
_MARK_SECONDS = 60.0
_POLL_SECONDS = 0.1

_ERROR_STATUS = 499
"""The least HTTP status that counts as an error, as in the published tables of ``mc support top api``."""

# MinIO traces these operations under the names of its handlers (cmd/api-router.go), which differ from S3's names.
_TRACED_AS = {
    "CreateMultipartUpload": "NewMultipartUpload",
    "DeleteObjects": "DeleteMultipleObjects",
    "ListObjects": "ListObjectsV1",
    "UploadPart": "PutObjectPart",
    "UploadPartCopy": "CopyObjectPart",
}


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The content of a bucket after a measurement; ``files`` counts the Parquet files among the current objects."""

    objects: int
    versions: int
    delete_markers: int
    files: int


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request in the trace: its API, such as ``s3.PutObject``, and the bytes sent and received, with headers."""

    at: datetime
    api: str
    path: str
    status: int
    received: int
    sent: int


@dataclass(frozen=True, kw_only=True)
class ApiCalls:
    """The requests of one API: their number, their bytes and the errors."""

    api: str
    received: int
    sent: int
    calls: int
    errors: int


@dataclass(frozen=True, kw_only=True)
class Phases:
    """The number of requests before the first batch, in it, and per later batch (including the query's end)."""

    batches: int
    startup: int
    first_batch: int
    per_batch: float


class Minio:
    """A client of the stack's MinIO; it has the administrator's credentials."""

    def __init__(self, bench: Bench) -> None:
        import boto3  # type: ignore[import-untyped]
        from botocore.config import Config

        self._endpoint, self._region = bench.endpoints.s3_endpoint, bench.endpoints.region
        self._logs = bench.logs
        self._session = boto3.Session(
            bench.endpoints.access_key, bench.endpoints.secret_key.get_secret_value(), region_name=self._region
        )
        path_style = Config(s3={"addressing_style": "path"})
        self._s3: Any = self._session.client("s3", endpoint_url=self._endpoint, config=path_style)

    def make_bucket(self, name: str, *, versioned: bool) -> None:
        self._s3.create_bucket(Bucket=name)
        if versioned:
            self._s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})

    def kept(self, bucket: str) -> Kept:
        return count_versions(self._s3.get_paginator("list_object_versions").paginate(Bucket=bucket))

    @contextmanager
    def trace(self, name: str) -> Iterator[Callable[[], list[Request]]]:
        """Trace all requests into a file; yield a function that returns the requests up to its call.

        A request for a bucket with a random name marks the start in the trace, and another one the end. The first is
        repeated until the trace shows it, because tracing begins with a delay.
        """
        import httpx
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        signed = AWSRequest("GET", self._endpoint + _TRACE)
        S3SigV4Auth(self._session.get_credentials(), "s3", self._region).add_auth(signed)
        headers = {**signed.headers, "Accept-Encoding": "identity"}
        file, ended = self._logs / f"{name}.trace.json", threading.Event()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
        with httpx.stream("GET", signed.url, headers=headers, timeout=_MARK_SECONDS) as response:
            response.raise_for_status()

            def copy() -> None:
                with file.open("ab", buffering=0) as output:
                    for chunk in response.iter_raw():
                        output.write(chunk)
                        if ended.is_set():
                            return

            thread = threading.Thread(target=copy, daemon=True)
            thread.start()
            try:
                begin = self._mark(file, repeat=True)

                def finish() -> list[Request]:
                    end = self._mark(file, repeat=False)
                    return between(parse(file.read_text()), begin=begin, end=end)

                yield finish
            finally:
                ended.set()
                thread.join()

    def _mark(self, file: Path, *, repeat: bool) -> str:
        """Request a bucket that does not exist; wait until the trace shows the request; return the bucket's name."""
        deadline, mark = time.monotonic() + _MARK_SECONDS, self._request_mark()
        while mark not in file.read_text():
            if time.monotonic() > deadline:
                what = f"the store's trace does not show a test request within {_MARK_SECONDS:.0f} s"
                raise Unreachable(what, where=str(file), hint="read this file and MinIO's log, then run it again")
            time.sleep(_POLL_SECONDS)
            if repeat and mark not in file.read_text():
                mark = self._request_mark()
        return mark

    def _request_mark(self) -> str:
        import httpx

        name = f"mark-{uuid.uuid4().hex}"
        # MinIO traces this unsigned request although it refuses the request.
        httpx.head(f"{self._endpoint}/{name}")
        return name


def count_versions(pages: Iterable[Mapping[str, Any]]) -> Kept:
    """Count the objects and versions in the pages of S3's ListObjectVersions."""
    listed = list(pages)
    versions = [version for page in listed for version in page.get("Versions", [])]
    newest = [version["Key"] for version in versions if version["IsLatest"]]
    return Kept(
        objects=len(newest),
        versions=len(versions),
        delete_markers=sum(len(page.get("DeleteMarkers", [])) for page in listed),
        files=sum(key.endswith(".parquet") for key in newest),
    )


def parse(text: str) -> list[Request]:
    """Return the requests in the trace's text, ordered by their start; ignore an incomplete last line."""
    requests = []
    for line in text.splitlines(keepends=True):
        if not line.strip() or not line.endswith("\n"):
            continue
        entry = json.loads(line)
        stats = entry["http"].get("stats", {})
        request = Request(
            at=datetime.fromisoformat(entry["time"]),
            api=entry["funcname"],
            path=entry["path"],
            status=entry["http"].get("response", {}).get("statuscode", 0),
            received=stats.get("inputbytes", 0),
            sent=stats.get("outputbytes", 0),
        )
        requests.append(request)
    return sorted(requests, key=lambda request: request.at)


def between(requests: Sequence[Request], *, begin: str, end: str) -> list[Request]:
    """Return the requests between a start and an end, which are requests for buckets with these names."""
    paths = [request.path.strip("/") for request in requests]
    return list(requests[paths.index(begin) + 1 : paths.index(end)])


def by_api(requests: Iterable[Request]) -> list[ApiCalls]:
    """Return the sum of the requests per API, ordered by name."""
    grouped: dict[str, list[Request]] = {}
    for request in requests:
        grouped.setdefault(request.api, []).append(request)
    return [
        ApiCalls(
            api=api,
            received=sum(request.received for request in group),
            sent=sum(request.sent for request in group),
            calls=len(group),
            errors=sum(request.status >= _ERROR_STATUS for request in group),
        )
        for api, group in sorted(grouped.items())
    ]


def phases(requests: Sequence[Request], *, checkpoint: str) -> Phases:
    """Count requests by phase; a batch begins with its first write to the checkpoint (``s3a://bucket/path``)."""
    # Spark's default checkpoint manager writes .0.<uuid>.tmp and then renames it to 0.
    entry = re.compile(re.escape(checkpoint.removeprefix("s3a:/")) + r"/offsets/\.?(\d+)(\..*)?")
    begins: dict[int, int] = {}
    for index, request in enumerate(requests):
        if request.api in ("s3.PutObject", "s3.NewMultipartUpload") and (match := entry.fullmatch(request.path)):
            begins.setdefault(int(match[1]), index)
    starts = [begins[batch] for batch in sorted(begins)]
    if not starts:
        return Phases(batches=0, startup=len(requests), first_batch=0, per_batch=0.0)
    first, second, *_ = [*starts, len(requests)]
    per_batch = (len(requests) - second) / max(len(starts) - 1, 1)
    return Phases(batches=len(starts), startup=first, first_batch=second - first, per_batch=per_batch)


def as_traced(metered: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of ``S3Requests.by_operation`` under the names that MinIO's trace uses."""
    return dict(sorted((f"s3.{_TRACED_AS.get(name, name)}", count) for name, count in metered.items() if count))
