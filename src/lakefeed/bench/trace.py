"""MinIO's own record of requests, as ``mc admin trace --json`` prints it, read and counted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

ERROR_STATUS = 499
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
class Request:
    """One request as the store saw it.

    Attributes:
        at: when it began.
        api: MinIO's name, such as ``s3.PutObject``.
        path: ``/bucket/key``.
        status: of the answer.
        received: bytes that the store received, headers included.
        sent: bytes that it sent.
    """

    at: datetime
    api: str
    path: str
    status: int
    received: int
    sent: int


@dataclass(frozen=True, kw_only=True)
class ApiCalls:
    """One line of the table."""

    api: str
    received: int
    sent: int
    calls: int
    errors: int


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Requests before, in and after the first batch; together they are all.

    Attributes:
        batches: micro-batches that were begun.
        startup: requests before the first entry in ``offsets``: what it takes to start a stream.
        first: from there to the second entry.
        per_batch: the mean over the batches after the first, the end of the query included.
    """

    batches: int
    startup: int
    first: int
    per_batch: float


def parse(text: str) -> list[Request]:
    """The requests of a trace in the order of their beginning; a last one that is not whole yet is left out."""
    decoder = json.JSONDecoder()
    found, position = [], 0
    while (position := text.find("{", position)) >= 0:
        try:
            document, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError:
            break
        if "api" in document:
            found.append(_request(document))
    return sorted(found, key=lambda request: request.at)


def between(requests: Sequence[Request], *, begin: str, end: str) -> list[Request]:
    """The requests between two marks, which are paths that somebody asked for just for this."""
    paths = [request.path.strip("/") for request in requests]
    return list(requests[paths.index(begin) + 1 : paths.index(end)])


def by_api(requests: Iterable[Request]) -> list[ApiCalls]:
    """The table's lines, by name."""
    grouped: dict[str, list[Request]] = {}
    for request in requests:
        grouped.setdefault(request.api, []).append(request)
    return [
        ApiCalls(
            api=api,
            received=sum(each.received for each in group),
            sent=sum(each.sent for each in group),
            calls=len(group),
            errors=sum(each.status >= ERROR_STATUS for each in group),
        )
        for api, group in sorted(grouped.items())
    ]


def phases(requests: Sequence[Request], *, checkpoint: str) -> Phases:
    """Start-up and steady state apart.

    Args:
        requests: in the order of their beginning.
        checkpoint: the location, ``s3a://bucket/path``.
    """
    # Spark's default manager writes .0.<uuid>.tmp first and then renames it.
    entry = re.compile(re.escape(checkpoint.removeprefix("s3a:/")) + r"/offsets/\.?(\d+)(\..*)?")
    begins: dict[int, int] = {}
    for index, request in enumerate(requests):
        if request.api in ("s3.PutObject", "s3.NewMultipartUpload") and (match := entry.fullmatch(request.path)):
            begins.setdefault(int(match[1]), index)
    starts = [begins[batch] for batch in sorted(begins)]
    if not starts:
        return Phases(batches=0, startup=len(requests), first=0, per_batch=0.0)
    second = starts[1] if len(starts) > 1 else len(requests)
    later = len(starts) - 1
    return Phases(
        batches=len(starts),
        startup=starts[0],
        first=second - starts[0],
        per_batch=(len(requests) - second) / later if later else 0.0,
    )


def as_traced(metered: Mapping[str, int]) -> dict[str, int]:
    """What ``lakefeed.jvm.s3_requests`` counts, under the names of the trace."""
    return dict(sorted((f"s3.{_TRACED_AS.get(name, name)}", count) for name, count in metered.items() if count))


def _request(document: Mapping[str, Any]) -> Request:
    stats = document.get("callStats") or {}
    return Request(
        at=datetime.fromisoformat(document["time"]),
        api=document["api"],
        path=document["path"],
        status=document.get("statusCode") or 0,
        received=stats.get("rx") or 0,
        sent=stats.get("tx") or 0,
    )
