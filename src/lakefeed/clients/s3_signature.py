"""AWS Signature Version 4 with the standard library, for the few S3 requests that Python makes itself.

After https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlsplit

from pydantic import SecretStr

_NOTHING = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, kw_only=True)
class Keys:
    """What requests are signed with."""

    access_key: str
    secret_key: SecretStr
    session_token: SecretStr | None = None


def signed_headers(
    url: str,
    *,
    keys: Keys,
    region: str,
    now: datetime | None = None,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The headers of a signed request without a body.

    Args:
        url: with its query, if any; percent-encoded.
        keys: whose request it is.
        region: the store's.
        now: the time of the request, in UTC; default now.
        method: of the request.
        headers: further headers to sign, their names in lower case.
    """
    at = now or datetime.now(UTC)
    stamp, day = at.strftime("%Y%m%dT%H%M%SZ"), at.strftime("%Y%m%d")
    parts = urlsplit(url)
    signed = {"host": parts.netloc, "x-amz-content-sha256": _NOTHING, "x-amz-date": stamp, **(headers or {})}
    if keys.session_token is not None:
        signed["x-amz-security-token"] = keys.session_token.get_secret_value()
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name].strip()}\n" for name in sorted(signed))
    pairs = sorted(
        (quote(key, safe="-_.~"), quote(value, safe="-_.~"))
        for key, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    query = "&".join(f"{key}={value}" for key, value in pairs)
    canonical = "\n".join([method, parts.path or "/", query, lines, names, _NOTHING])
    scope = f"{day}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = b"AWS4" + keys.secret_key.get_secret_value().encode()
    for word in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, word.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={keys.access_key}/{scope}"
    signed["authorization"] = f"AWS4-HMAC-SHA256 {credential},SignedHeaders={names},Signature={signature}"
    return signed
