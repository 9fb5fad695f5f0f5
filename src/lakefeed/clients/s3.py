"""Check a bucket of an S3 store within seconds, with the standard library instead of an SDK or a JVM.

The request lists one key, which every user of a bucket may do. The answer to a refused listing has an error code,
unlike the answer to a refused HEAD request. The request is signed with AWS Signature Version 4:
https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from html import unescape
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

from pydantic import SecretStr

from lakefeed.clients.http import TIMEOUT_SECONDS, ask
from lakefeed.config import trust
from lakefeed.config.connections import AWS_KEYS, S3
from lakefeed.errors import AccessDenied, ConfigError, LakefeedError, MissingExtra, ResourceMissing, Unreachable

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials

_ENTRY = re.compile(r"<Contents>(.*?)</Contents>", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Keys:
    access_key: str
    secret_key: SecretStr
    session_token: SecretStr | None = None


def configured_keys(s3: S3) -> Keys:
    """Return the declared keys, else those of the environment, else those of AWS's default chain, as Spark does.

    Raises:
        MissingExtra: botocore, which implements the chain, is missing.
        AccessDenied: the chain has no keys, or a service that it asks refuses access.
    """
    access, secret, token = s3.access_key, s3.secret_key, s3.session_token
    if access is None or secret is None:
        own = {key: SecretStr(os.environ.get(variable) or "") for key, variable in AWS_KEYS.items()}
        access, secret, token = own["access_key"], own["secret_key"], own["session_token"] or None
        if not access or not secret:
            chain = keys_of_the_chain("S3", purpose="looking up S3 keys in AWS's default chain without Spark")
            access, secret = SecretStr(chain.access_key), SecretStr(chain.secret_key)
            token = SecretStr(chain.token) if chain.token else None
    return Keys(access_key=access.get_secret_value(), secret_key=secret, session_token=token)


def require_bucket(bucket: str, *, s3: S3, keys: Keys | None, timeout: float = TIMEOUT_SECONDS) -> None:
    """Raise an error unless the bucket exists and these keys may list it; ``timeout`` is in seconds per attempt.

    Without keys the request is not signed, so only a missing bucket or a store that does not answer is an error.
    """
    url = bucket_url(bucket, s3=s3)
    headers = signed_headers(url, keys=keys, region=s3.region) if keys else {"host": urlsplit(url).netloc}
    status, body = ask(url, server="the S3 store", headers=headers, timeout=timeout)
    if keys is None and status in (401, 403):
        return
    if error := _verdict(status, body, bucket=bucket, where=s3.endpoint or url):
        raise error


def bucket_url(bucket: str, *, s3: S3) -> str:
    """Return the URL that lists one key of a bucket."""
    return f"{_bucket_base(bucket, s3=s3)}?list-type=2&max-keys=1"


def object_url(bucket: str, key: str, *, s3: S3) -> str:
    return _bucket_base(bucket, s3=s3).rstrip("/") + f"/{quote(key, safe='-_.~/')}"


def prefix_url(bucket: str, prefix: str, *, s3: S3) -> str:
    """Return the URL that lists the first thousand objects whose key begins with ``prefix``."""
    return f"{_bucket_base(bucket, s3=s3)}?list-type=2&prefix={quote(prefix, safe='-_.~')}"


class Listing(NamedTuple):
    """The objects of a listing: sizes in bytes by key, in the order of the keys."""

    sizes: dict[str, int]
    is_truncated: bool


def read_listing(body: bytes) -> Listing:
    """Parse the body of a listing: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html"""
    text, sizes = body.decode("utf-8", "replace"), dict[str, int]()
    for entry in _ENTRY.findall(text):
        key, size = re.search(r"<Key>([^<]*)</Key>", entry), re.search(r"<Size>(\d+)</Size>", entry)
        if key and size:
            sizes[unescape(key[1])] = int(size[1])
    return Listing(sizes, is_truncated="<IsTruncated>true</IsTruncated>" in text)


def _bucket_base(bucket: str, *, s3: S3) -> str:
    base = s3.endpoint or f"https://s3.{s3.region}.amazonaws.com"
    # A store's wildcard certificate does not cover a bucket with dots in its name.
    if s3.uses_path_style or "." in bucket:
        return f"{base}/{bucket}"
    parts = urlsplit(base)
    return f"{parts.scheme}://{bucket}.{parts.netloc}/"


def signed_headers(
    url: str,
    *,
    keys: Keys,
    region: str,
    now: datetime | None = None,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> dict[str, str]:
    """Return the headers of a signed request; the names in ``headers`` must be in lower case."""
    at = now or datetime.now(UTC)
    stamp, day = at.strftime("%Y%m%dT%H%M%SZ"), at.strftime("%Y%m%d")
    parts = urlsplit(url)
    digest = hashlib.sha256(body).hexdigest()
    signed = {"host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": stamp, **(headers or {})}
    if keys.session_token is not None:
        signed["x-amz-security-token"] = keys.session_token.get_secret_value()
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name].strip()}\n" for name in sorted(signed))
    pairs = sorted(
        (quote(key, safe="-_.~"), quote(value, safe="-_.~"))
        for key, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    query = "&".join(f"{key}={value}" for key, value in pairs)
    canonical = "\n".join([method, parts.path or "/", query, lines, names, digest])
    scope = f"{day}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = b"AWS4" + keys.secret_key.get_secret_value().encode()
    for word in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, word.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={keys.access_key}/{scope}"
    signed["authorization"] = f"AWS4-HMAC-SHA256 {credential},SignedHeaders={names},Signature={signature}"
    return signed


def _verdict(status: int, body: bytes, *, bucket: str, where: str) -> LakefeedError | None:
    """Return the error that the answer to a listing shows; None if the bucket was listed."""
    match = re.search(rb"<Code>(\w+)</Code>", body)
    code = match[1].decode() if match else ""
    if status == 200 and b"<ListBucketResult" in body:
        return None
    if code == "NoSuchBucket":
        hint = f"create it, for instance: aws s3 mb s3://{bucket}"
        return ResourceMissing(f"there is no bucket {bucket}", where=where, hint=hint)
    if code in ("InvalidAccessKeyId", "SignatureDoesNotMatch"):
        which = "access key id" if code == "InvalidAccessKeyId" else "secret key"
        hint = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or access_key and secret_key of the block s3"
        return AccessDenied(f"the S3 store refuses the credentials: the {which} is wrong", where=where, hint=hint)
    if code in ("ExpiredToken", "InvalidToken", "TokenRefreshRequired"):
        why = "the session token has expired" if code == "ExpiredToken" else f"the session token is wrong ({code})"
        hint = "set new keys with their session token; or set none, and AWS's default chain gets and renews them"
        return AccessDenied(f"the S3 store refuses the credentials: {why}", where=where, hint=hint)
    if code in ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"):
        return ConfigError(
            f"the bucket {bucket} is in another region", where=where, hint="set s3.region to the bucket's region"
        )
    if code == "RequestTimeTooSkewed":
        what = "this machine's clock and the S3 store's differ too much"
        return AccessDenied(what, where=where, hint="set this machine's clock, for example by chrony")
    if status in (401, 403):
        what = f"the S3 store refuses access to the bucket {bucket} ({code or status})"
        hint = f"these credentials must be allowed to list, read and write s3://{bucket}"
        return AccessDenied(what, where=where, hint=hint)
    if status >= 500 or status == 429:
        what = f"the S3 store answers with HTTP status {status} {code}".rstrip()
        return Unreachable(what, where=where, hint="try again later; if the status remains, look at the store's log")
    what = f"this address answers, but not as an S3 store does (HTTP status {status})"
    return ConfigError(what, where=where, hint="give the address of the store's S3 API, not that of its console")


def keys_of_the_chain(kind: str, *, purpose: str, profile: str | None = None) -> ReadOnlyCredentials:
    """Return currently valid keys of AWS's default chain: web identity, profile, container, instance.

    Args:
        kind: the service that the keys are for, in one word, for messages.
        purpose: the operation that needs botocore, for the error if botocore is missing.
        profile: use this profile of ``~/.aws``. Default: AWS_PROFILE, else the first keys that the chain finds.

    Raises:
        MissingExtra: botocore, which implements the chain, is missing.
        AccessDenied: the chain has no keys, or a service that it asks refuses access.
    """
    try:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import Session
    except ImportError:
        raise MissingExtra.of("botocore", "aws", purpose) from None
    # Silence botocore's log, which would have a failure's stack trace: the error below reports the failure.
    logging.getLogger("botocore.credentials").disabled = True
    where = "AWS's default chain: environment, web identity, profile, container, instance"
    session = Session(profile=profile)
    # Without this setting, botocore only trusts the certificates of AWS_CA_BUNDLE.
    if (bundle := trust.authorities_file()) is not None:
        session.set_config_variable("ca_bundle", bundle)
    session.set_config_variable("metadata_service_timeout", TIMEOUT_SECONDS)
    try:
        credentials = session.get_credentials()
        frozen = None if credentials is None else credentials.get_frozen_credentials()
    except (BotoCoreError, ClientError) as error:
        what = f"AWS returns no {kind} keys: {re.sub(r'https?://[^ ]*[?][^ ]*', '(address)', str(error))}"
        hint = "correct the profile, role or token file that the message names; aws sts get-caller-identity tests them"
        raise AccessDenied(what, where=where, hint=hint) from None
    if frozen is None:
        other = "the block s3, or " if kind == "S3" else ""
        hint = f"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or {other}give this machine a role"
        raise AccessDenied(f"no {kind} keys were found", where=where, hint=hint)
    return frozen
