"""Test without Spark whether an S3 store refuses the second of two writers."""

from __future__ import annotations

import uuid
from http.client import HTTPException

from lakefeed.clients.http import TIMEOUT_SECONDS, exchange
from lakefeed.clients.s3 import Keys, object_url, signed_headers
from lakefeed.config.connections import S3
from lakefeed.errors import AccessDenied, ConfigError, Unreachable

ABSENT = {"if-none-match": "*"}


def require_conditional_writes(bucket: str, key: str, *, s3: S3, keys: Keys) -> None:
    """Raise an error unless the store refuses a second PUT of an object with ``If-None-Match: *``.

    Writes an object of a new name that begins with ``key``, and deletes it.
    """
    url, where = object_url(bucket, f"{key}-{uuid.uuid4()}", s3=s3), f"s3://{bucket}"

    def send(method: str, headers: dict[str, str], body: bytes) -> int:
        signed = signed_headers(url, keys=keys, region=s3.region, method=method, headers=headers, body=body)
        try:
            return exchange(method, url, seconds=TIMEOUT_SECONDS, headers=signed, body=body).status
        except (OSError, HTTPException, ValueError) as error:
            raise Unreachable(f"the S3 store does not answer: {error}", where=where, hint="try again later") from None

    try:
        statuses = [send("PUT", ABSENT, b"lakefeed") for _ in range(2)]
    finally:
        send("DELETE", {}, b"")
    if statuses[0] in (401, 403):
        hint = f"these credentials must be allowed to write s3://{bucket}/{key}"
        raise AccessDenied(f"the S3 store refuses to write ({statuses[0]})", where=where, hint=hint)
    if statuses != [200, 412]:
        what = (
            f"the S3 store does not honour If-None-Match: two PUTs of one object ended with {statuses}, not [200, 412]"
        )
        hint = "use a store with conditional writes: without them, two drivers overwrite each other's commits"
        raise ConfigError(what, where=where, hint=hint)
