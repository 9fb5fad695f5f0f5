"""Signed requests to an S3 store, their errors, and the keys."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs
from xml.etree.ElementTree import Element, SubElement, tostring

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from lakefeed.clients.s3 import (
    Keys,
    Listing,
    _verdict,
    bucket_url,
    configured_keys,
    read_listing,
    require_bucket,
    signed_headers,
)
from lakefeed.config.connections import S3
from lakefeed.errors import AccessDenied, ConfigError, LakefeedError, ResourceMissing, Unreachable
from lakefeed_testing.schemas import HttpAnswer, HttpRequest, serve_http

# The keys and the time of AWS's published examples of Signature Version 4 for S3.
KEYS = Keys(access_key="AKIAIOSFODNN7EXAMPLE", secret_key=SecretStr("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"))
AT = datetime(2013, 5, 24, tzinfo=UTC)


@pytest.mark.parametrize(
    ("path", "headers", "signature"),
    [
        ("?max-keys=2&prefix=J", {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        ("?lifecycle", {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("/test.txt", {"range": "bytes=0-9"}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
    ],
)
def test_signatures_equal_those_that_aws_publishes(path: str, headers: dict[str, str], signature: str) -> None:
    url = f"https://examplebucket.s3.amazonaws.com{path}"
    signed = signed_headers(url, keys=KEYS, region="us-east-1", now=AT, headers=headers)
    assert signed["authorization"].endswith(f"Signature={signature}")
    assert "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request" in signed["authorization"]


def test_a_session_token_is_signed() -> None:
    keys = Keys(access_key="a", secret_key=SecretStr("b"), session_token=SecretStr("t"))
    signed = signed_headers("http://h/b", keys=keys, region="r", now=AT)
    assert signed["x-amz-security-token"] == "t"
    assert "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token," in signed["authorization"]


@pytest.mark.parametrize(
    ("s3", "bucket", "url"),
    [
        (S3(endpoint="http://h:1"), "lake", "http://h:1/lake?"),
        (S3(endpoint="http://h:1/", path_style=False), "lake", "http://lake.h:1/?"),
        (S3(region="eu-west-1"), "lake", "https://lake.s3.eu-west-1.amazonaws.com/?"),
        (S3(region="eu-west-1"), "a.b", "https://s3.eu-west-1.amazonaws.com/a.b?"),
    ],
)
def test_the_url_of_a_bucket_depends_on_the_style(s3: S3, bucket: str, url: str) -> None:
    assert bucket_url(bucket, s3=s3).startswith(url)


@pytest.mark.parametrize(
    ("status", "body", "error", "what"),
    [
        (200, "<ListBucketResult>", None, ""),
        (404, "<Code>NoSuchBucket</Code>", ResourceMissing, "there is no bucket lake"),
        (403, "<Code>InvalidAccessKeyId</Code>", AccessDenied, "the access key id is wrong"),
        (403, "<Code>SignatureDoesNotMatch</Code>", AccessDenied, "the secret key is wrong"),
        (400, "<Code>ExpiredToken</Code>", AccessDenied, "the session token has expired"),
        (403, "<Code>InvalidToken</Code>", AccessDenied, "the session token is wrong"),
        (403, "<Code>AccessDenied</Code>", AccessDenied, "refuses access to the bucket lake"),
        (403, "", AccessDenied, "refuses access to the bucket lake (403)"),
        (403, "<Code>RequestTimeTooSkewed</Code>", AccessDenied, "clock"),
        (301, "<Code>PermanentRedirect</Code>", ConfigError, "another region"),
        (400, "<Code>AuthorizationHeaderMalformed</Code>", ConfigError, "another region"),
        (503, "<Code>SlowDown</Code>", Unreachable, "HTTP status 503 SlowDown"),
        (200, "<html>", ConfigError, "not as an S3 store does"),
        (404, "not found", ConfigError, "not as an S3 store does"),
    ],
)
def test_each_answer_of_the_store_has_its_own_error(
    status: int, body: str, error: type[LakefeedError] | None, what: str
) -> None:
    found = _verdict(status, body.encode(), bucket="lake", where="http://h")
    assert (type(found) if found else None) is error
    assert found is None or what in found.what


def test_an_error_of_a_store_that_is_down_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="the S3 store does not answer"):
        require_bucket("lake", s3=S3(endpoint="http://127.0.0.1:1"), keys=KEYS, timeout=2)


@pytest.mark.parametrize("bad_moment", ["503", "cut"])
def test_a_request_is_retried_after_a_server_error_or_a_lost_connection(bad_moment: str) -> None:
    asked: list[str] = []
    first = HttpAnswer(503, b"<Code>SlowDown</Code>")
    if bad_moment == "cut":
        first = HttpAnswer(200, b"<List", headers={"Content-Length": "18"})

    def answer(request: HttpRequest) -> HttpAnswer:
        asked.append(request.path)
        return first if len(asked) == 1 else HttpAnswer(body=b"<ListBucketResult>")

    with serve_http(answer) as url:
        require_bucket("lake", s3=S3(endpoint=url), keys=KEYS)
    assert len(asked) == 2


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["C"]), min_size=1), st.integers(0, 2**62)), st.booleans()
)
def test_any_listing_is_parsed(sizes: dict[str, int], more: bool) -> None:
    root = Element("ListBucketResult", xmlns="http://s3.amazonaws.com/doc/2006-03-01/")
    SubElement(root, "Prefix").text = "runs/"
    for key, size in sizes.items():
        entry = SubElement(root, "Contents")
        SubElement(entry, "Key").text = key
        SubElement(entry, "Size").text = str(size)
        SubElement(SubElement(entry, "Owner"), "ID").text = "<Key>"
    SubElement(root, "IsTruncated").text = str(more).lower()
    assert read_listing(tostring(root)) == Listing(sizes, is_truncated=more)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "ROLE_ARN"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


GIVEN = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>given</AccessKeyId>
<SecretAccessKey>secret</SecretAccessKey><SessionToken>for-{token}</SessionToken><Expiration>{ends}</Expiration>
</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""
EXPIRED = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>
<Code>ExpiredTokenException</Code><Message>Token expired</Message></Error></ErrorResponse>"""


def assume_role(request: HttpRequest) -> HttpAnswer:
    """Answer AssumeRoleWithWebIdentity as AWS STS does."""
    token = parse_qs(request.body.decode())["WebIdentityToken"][0]
    ends = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = EXPIRED if token == "expired" else GIVEN.format(token=token, ends=ends)
    return HttpAnswer(400 if text == EXPIRED else 200, text.encode(), {"content-type": "text/xml"})


def test_keys_come_from_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text("[feeds]\naws_access_key_id = one\naws_secret_access_key = two\n")
    monkeypatch.setenv("AWS_PROFILE", "feeds")
    keys = configured_keys(S3())
    assert (keys.access_key, keys.secret_key.get_secret_value(), keys.session_token) == ("one", "two", None)


def test_keys_come_from_a_web_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("token-1")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/feed")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with serve_http(assume_role) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts)
        keys = configured_keys(S3())
        assert keys.access_key == "given"
        assert keys.session_token is not None
        assert keys.session_token.get_secret_value() == "for-token-1"
        # The file of the token is read each time, because Kubernetes replaces it.
        token.write_text("expired")
        with pytest.raises(AccessDenied, match="Token expired"):
            configured_keys(S3())


def test_missing_keys_and_a_missing_profile_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AccessDenied, match="no S3 keys were found"):
        configured_keys(S3())
    monkeypatch.setenv("AWS_PROFILE", "nowhere")
    with pytest.raises(AccessDenied, match="nowhere"):
        configured_keys(S3())
