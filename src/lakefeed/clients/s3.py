"""Asks an S3 store about one bucket, with the standard library alone: no SDK, no JVM, an answer in seconds.

The request is a listing of one key, which any user of a bucket may do and whose errors, unlike those of HEAD,
come with a code that says what is wrong.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from lakefeed.clients.http import exchange
from lakefeed.clients.s3_signature import Keys, signed_headers
from lakefeed.config.connections import S3
from lakefeed.errors import AccessDenied, ConfigError, LakefeedError, ResourceMissing, Unreachable

TIMEOUT_SECONDS = 5.0
PAUSES_SECONDS = (0.2, 0.5)
_PASSING = (ConnectionResetError, http.client.RemoteDisconnected, http.client.IncompleteRead)


def require_bucket(bucket: str, *, s3: S3, keys: Keys | None, timeout: float = TIMEOUT_SECONDS) -> None:
    """Makes sure that a bucket is there and that these keys may list it.

    Args:
        bucket: its name.
        s3: the store.
        keys: None to ask without a signature: then only a missing bucket or store is noticed.
        timeout: seconds for each attempt, from the connection to the last byte.

    Raises:
        Unreachable: no server answers, or one answers with its own error.
        AccessDenied: the keys are wrong, or may not list the bucket.
        ResourceMissing: there is no such bucket.
        ConfigError: another region's bucket, or what answers is no S3 store.
    """
    url = bucket_url(bucket, s3=s3)
    headers = signed_headers(url, keys=keys, region=s3.region) if keys else {"host": urlsplit(url).netloc}
    status, body = get(url, server="the S3 store", headers=headers, timeout=timeout)
    if keys is None and status in (401, 403):
        return
    if error := _verdict(status, body, bucket=bucket, where=s3.endpoint or url):
        raise error


def bucket_url(bucket: str, *, s3: S3) -> str:
    """Where one key of a bucket is listed, with the bucket in the path or in the host's name."""
    base = s3.endpoint or f"https://s3.{s3.region}.amazonaws.com"
    query = "list-type=2&max-keys=1"
    # A bucket with dots in its name does not fit the store's certificate.
    if s3.uses_path_style or "." in bucket:
        return f"{base}/{bucket}?{query}"
    parts = urlsplit(base)
    return f"{parts.scheme}://{bucket}.{parts.netloc}/?{query}"


def get(url: str, *, server: str, headers: Mapping[str, str], timeout: float = TIMEOUT_SECONDS) -> tuple[int, bytes]:
    """Status and body of what a URL answers. Redirects are not followed: they would take headers along.

    Asks again where a server has a bad moment: an error of its own, or a connection that it cuts.

    Raises:
        Unreachable: no whole answer in time.
    """
    for pause in PAUSES_SECONDS:
        try:
            status, body = _asked("GET", url, server=server, headers=headers, timeout=timeout)
        except Unreachable as error:
            if not isinstance(error.__context__, _PASSING):
                raise
        else:
            if status < 500 and status != 429:
                return status, body
        time.sleep(pause)
    return _asked("GET", url, server=server, headers=headers, timeout=timeout)


def post(
    url: str, *, server: str, headers: Mapping[str, str], body: bytes, timeout: float = TIMEOUT_SECONDS
) -> tuple[int, bytes]:
    """As ``get``, for a form.

    Raises:
        Unreachable: no whole answer in time.
    """
    return _asked("POST", url, server=server, headers=headers, timeout=timeout, body=body)


def _asked(
    method: str, url: str, *, server: str, headers: Mapping[str, str], timeout: float, body: bytes | None = None
) -> tuple[int, bytes]:
    try:
        answer = exchange(method, url, seconds=timeout, headers=headers, body=body)
        return answer.status, answer.body
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        hint = "check the address and that the server runs; for the local stack: lakefeed local status"
        parts = urlsplit(url)
        where = f"{parts.scheme}://{parts.netloc}"
        raise Unreachable(f"{server} does not answer: {reason}", where=where, hint=hint) from None


def _verdict(status: int, body: bytes, *, bucket: str, where: str) -> LakefeedError | None:
    found = re.search(rb"<Code>(\w+)</Code>", body)
    code = found[1].decode() if found else ""
    if status == 200 and b"<ListBucketResult" in body:
        return None
    if code == "NoSuchBucket":
        hint = f"create it, for instance: aws s3 mb s3://{bucket}"
        return ResourceMissing(f"there is no bucket {bucket}", where=where, hint=hint)
    if code in ("InvalidAccessKeyId", "SignatureDoesNotMatch"):
        which = "access key id" if code == "InvalidAccessKeyId" else "secret key"
        hint = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or access_key and secret_key of the block s3"
        return AccessDenied(f"the S3 store refuses the credentials: the {which} is wrong", where=where, hint=hint)
    if code in ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"):
        return ConfigError(f"the bucket {bucket} is in another region", where=where, hint="set s3.region")
    if code == "RequestTimeTooSkewed":
        return AccessDenied("this machine's clock and the S3 store's differ too much", where=where)
    if status in (401, 403):
        hint = f"these credentials must be allowed to list, read and write s3://{bucket}"
        return AccessDenied(
            f"the S3 store refuses access to the bucket {bucket} ({code or status})", where=where, hint=hint
        )
    if status >= 500 or status == 429:
        return Unreachable(f"the S3 store answers with HTTP status {status} {code}".rstrip(), where=where)
    hint = "is it the address of the store's S3 API, not of its console?"
    return ConfigError(
        f"this address answers, but not as an S3 store does (HTTP status {status})", where=where, hint=hint
    )
