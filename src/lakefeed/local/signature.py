"""AWS Signature Version 4 for the few S3 requests that the stack itself makes.

So that starting the stack needs no S3 client beyond the standard library. After
https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

from __future__ import annotations

import hashlib
import hmac
import urllib.request
from datetime import UTC, datetime
from urllib.parse import urlsplit

from lakefeed.local.home import Credentials

_NOTHING = hashlib.sha256(b"").hexdigest()


def signed(
    method: str, url: str, *, credentials: Credentials, region: str, now: datetime | None = None
) -> urllib.request.Request:
    """A signed request without a body or a query, for a path that needs no escaping."""
    at = now or datetime.now(UTC)
    stamp, day = at.strftime("%Y%m%dT%H%M%SZ"), at.strftime("%Y%m%d")
    parts = urlsplit(url)
    headers = {"host": parts.netloc, "x-amz-content-sha256": _NOTHING, "x-amz-date": stamp}
    names = ";".join(headers)
    canonical_headers = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = "\n".join([method, parts.path or "/", "", canonical_headers, names, _NOTHING])
    scope = f"{day}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = b"AWS4" + credentials.secret_key.get_secret_value().encode()
    for word in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, word.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 (our own server)
    request.add_header("Authorization", authorization)
    return request
