"""MinIO's client: buckets, object versions, and the trace that referees a measurement, read and counted."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from lakefeed.errors import JobFailed, Unreachable
from lakefeed.local import Endpoints
from lakefeed.local.go import GoProgram
from lakefeed.local.part import NotReady, ask

MC = GoProgram(name="mc", package="github.com/minio/mc", version="v0.0.0-20250313080218-cf909e1063a9")

_ALIAS = "bench"
_MARK_SECONDS = 60.0
_POLL_SECONDS = 0.1

_ERROR_STATUS = 499
"""``mc support top api``, which printed the tables that are repeated here, calls an answer an error from here on."""

# MinIO's name where it is another than S3's own (cmd/api-router.go: the name of the handler).
_TRACED_AS = {
    "CreateMultipartUpload": "NewMultipartUpload",
    "DeleteObjects": "DeleteMultipleObjects",
    "ListObjects": "ListObjectsV1",
    "UploadPart": "PutObjectPart",
    "UploadPartCopy": "CopyObjectPart",
}


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The content of a bucket at the end: objects that a listing shows, Parquet files among them, and all versions."""

    objects: int
    versions: int
    delete_markers: int
    files: int


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as the store saw it: its API, such as ``s3.PutObject``, and bytes with the headers."""

    at: datetime
    api: str
    path: str
    status: int
    received: int
    sent: int


@dataclass(frozen=True, kw_only=True)
class ApiCalls:
    """The requests of one API."""

    api: str
    received: int
    sent: int
    calls: int
    errors: int


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Requests before and in the first batch, and the mean over the later ones, the end of the query included."""

    batches: int
    startup: int
    first_batch: int
    per_batch: float


class MinioClient:
    """``mc``, built at its first use and given the endpoint by its environment: no secret on a command line."""

    def __init__(self, endpoints: Endpoints, *, home: Path) -> None:
        self._endpoint = endpoints.s3_endpoint
        self._home = home
        home.mkdir(parents=True, exist_ok=True)
        MC.build(log=home / "mc-build.log")
        scheme, _, address = endpoints.s3_endpoint.partition("://")
        secret = endpoints.secret_key.get_secret_value()
        self._environment = {
            **os.environ,
            "MC_CONFIG_DIR": str(home / "mc"),
            f"MC_HOST_{_ALIAS}": f"{scheme}://{endpoints.access_key}:{secret}@{address}",
        }

    def make_bucket(self, name: str, *, versioned: bool) -> None:
        self._run("mb", f"{_ALIAS}/{name}")
        if versioned:
            self._run("version", "enable", f"{_ALIAS}/{name}")

    def kept(self, bucket: str) -> Kept:
        """Count the bucket's content by S3's ListObjectVersions."""
        lines = self._run("ls", "--recursive", "--versions", f"{_ALIAS}/{bucket}")
        return count_versions([line for line in lines if "key" in line])

    @contextlib.contextmanager
    def trace(self, name: str) -> Iterator[Callable[[], list[Request]]]:
        """Trace all requests; yield a function that ends the trace and returns the requests so far.

        A trace has no beginning that one could see: the client connects in the background. Hence a request for a
        bucket of a random name is repeated until it shows in the trace, and another one is made at the end. Requests
        after the end, such as a check of the result, do not count.
        """
        file = self._home / f"{name}.trace.json"
        with file.open("wb") as output:
            command = [str(MC.path), "--json", "admin", "trace", _ALIAS]
            process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            begin = self._mark(file, process, repeat=True)

            def finish() -> list[Request]:
                end = self._mark(file, process, repeat=False)
                return between(parse(file.read_text()), begin=begin, end=end)

            yield finish
        finally:
            process.terminate()
            process.wait()

    def _mark(self, file: Path, process: subprocess.Popen[bytes], *, repeat: bool) -> str:
        """Request a bucket that does not exist, and wait until the trace shows the request."""
        deadline = time.monotonic() + _MARK_SECONDS
        mark = self._request_mark()
        while mark not in file.read_text():
            if time.monotonic() > deadline or process.poll() is not None:
                what = "the store's trace does not show a request that was made"
                raise Unreachable(what, where=str(file), hint="read the file")
            time.sleep(_POLL_SECONDS)
            if repeat and mark not in file.read_text():
                mark = self._request_mark()
        return mark

    def _request_mark(self) -> str:
        name = f"mark-{uuid.uuid4().hex}"
        # Refused, as it is not signed and there is no such bucket: the trace has it all the same.
        with contextlib.suppress(NotReady):
            ask(f"{self._endpoint}/{name}", method="HEAD")
        return name

    def _run(self, *arguments: str) -> list[dict[str, Any]]:
        command = [str(MC.path), "--json", *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        documents = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        errors = [document["error"]["message"] for document in documents if document.get("status") == "error"]
        if done.returncode != 0 or errors:
            raise JobFailed(f"mc {arguments[0]} failed: {'; '.join(errors) or done.stderr.strip()}")
        return documents


def count_versions(listed: list[dict[str, Any]]) -> Kept:
    """Count the lines of ``mc ls --versions``: newest first for each key."""
    newest: dict[str, dict[str, Any]] = {}
    for line in listed:
        newest.setdefault(line["key"], line)
    shown = [key for key, line in newest.items() if not line.get("isDeleteMarker")]
    markers = sum(bool(line.get("isDeleteMarker")) for line in listed)
    return Kept(
        objects=len(shown),
        versions=len(listed) - markers,
        delete_markers=markers,
        files=sum(key.endswith(".parquet") for key in shown),
    )


def parse(text: str) -> list[Request]:
    """Return the requests of ``mc admin trace --json``, by their beginning, without an incomplete last one."""
    decoder = json.JSONDecoder()
    found, position = [], 0
    while (position := text.find("{", position)) >= 0:
        try:
            document, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError:
            break
        if "api" in document:
            stats = document.get("callStats") or {}
            request = Request(
                at=datetime.fromisoformat(document["time"]),
                api=document["api"],
                path=document["path"],
                status=document.get("statusCode") or 0,
                received=stats.get("rx") or 0,
                sent=stats.get("tx") or 0,
            )
            found.append(request)
    return sorted(found, key=lambda request: request.at)


def between(requests: Sequence[Request], *, begin: str, end: str) -> list[Request]:
    """Return the requests between those for two marks."""
    paths = [request.path.strip("/") for request in requests]
    return list(requests[paths.index(begin) + 1 : paths.index(end)])


def by_api(requests: Iterable[Request]) -> list[ApiCalls]:
    """Add up the requests of each API, by name."""
    grouped: defaultdict[str, list[Request]] = defaultdict(list)
    for request in requests:
        grouped[request.api].append(request)
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
    """Separate start-up and steady state of ``parse``'s requests; the checkpoint is ``s3a://bucket/path``."""
    # Spark's default manager writes .0.<uuid>.tmp first and then renames it.
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
    """Return the counts of ``lakefeed.clients.spark.jvm.s3_requests`` under the names of the trace."""
    return dict(sorted((f"s3.{_TRACED_AS.get(name, name)}", count) for name, count in metered.items() if count))
