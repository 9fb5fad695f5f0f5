"""Run the object stores of the contract suite, and create a new bucket for each test, plain or versioned."""

from __future__ import annotations

import hashlib
import hmac
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest

from lakefeed_local.part import choose_free
from lakefeed_local.servers import Minio, VersityGateway
from lakefeed_local.stack import Endpoints

REGION = "us-east-1"
STORES = (
    "s3proxy",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("minio", "minio-versioned", "versitygw", "versitygw-versioned")
    ),
)
"""The default store; and the stores that are built from source, plain and versioned."""


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A bucket of a running store.

    Attributes:
        name: the bucket's name.
        store: the store that has the bucket.
    """

    name: str
    store: Store

    @property
    def versioned(self) -> bool:
        """True if the bucket keeps old versions."""
        return self.store.versioned

    def url(self, *path: str) -> str:
        """Return the bucket's URL for Spark."""
        return "/".join([f"s3a://{self.name}", *path])

    def create(self) -> None:
        """Create the bucket, and enable versioning if the store is to be versioned."""
        for _ in range(50):
            try:
                self.request("PUT", "")
            except urllib.error.HTTPError as answer:
                if answer.code != 503:
                    raise
                answer.close()  # The store listens, but is not ready yet.
                time.sleep(0.2)
            else:
                break
        if self.versioned:
            self.keep_versions("Enabled")

    def keep_versions(self, status: Literal["Enabled", "Suspended"]) -> None:
        """Enable or suspend versioning."""
        body = f"<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>"
        self.request("PUT", "", query={"versioning": ""}, body=body.encode())

    def put(self, key: str, body: bytes) -> None:
        """Write an object; replace an existing object of this key."""
        self.request("PUT", key, body=body)

    def remove(self, key: str) -> None:
        """Delete an object as any S3 client would."""
        self.request("DELETE", key)

    def keys(self, prefix: str = "") -> list[str]:
        """Return all keys; at most 1,000."""
        answer = self.request("GET", "", query={"list-type": "2", "prefix": prefix})
        return _texts(answer, "Contents", "Key")

    def versions(self, prefix: str = "") -> tuple[list[str], list[str]]:
        """Return the keys of all versions, and the keys of all delete markers; at most 1,000."""
        answer = self.request("GET", "", query={"prefix": prefix, "versions": ""})
        return _texts(answer, "Version", "Key"), _texts(answer, "DeleteMarker", "Key")

    def pending_uploads(self) -> list[str]:
        """Return the keys of multipart uploads that are neither completed nor aborted."""
        return _texts(self.request("GET", "", query={"uploads": ""}), "Upload", "Key")

    def request(self, method: str, key: str, *, query: dict[str, str] | None = None, body: bytes = b"") -> bytes:
        """Send a signed request (https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html)."""
        path = "/" + urllib.parse.quote(f"{self.name}/{key}".rstrip("/"))
        text = "&".join(f"{name}={urllib.parse.quote(value, safe='')}" for name, value in sorted((query or {}).items()))
        now = datetime.now(UTC)
        stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        digest = hashlib.sha256(body).hexdigest()
        host = urllib.parse.urlsplit(self.store.endpoint).netloc
        headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": stamp}
        names = ";".join(headers)
        canonical = "\n".join([method, path, text, *(f"{k}:{v}" for k, v in headers.items()), "", names, digest])
        scope = f"{day}/{REGION}/s3/aws4_request"
        to_sign = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        secret = b"AWS4" + self.store.secret_key.encode()
        for word in (day, REGION, "s3", "aws4_request"):
            secret = hmac.digest(secret, word.encode(), "sha256")
        signature = hmac.digest(secret, to_sign.encode(), "sha256").hex()
        request = urllib.request.Request(
            f"{self.store.endpoint}{path}" + (f"?{text}" if text else ""),
            method=method,
            headers=headers,
            data=body or None,
        )
        request.add_header(
            "Authorization",
            f"AWS4-HMAC-SHA256 Credential={self.store.access_key}/{scope}, SignedHeaders={names}, "
            f"Signature={signature}",
        )
        request.add_header("Content-Type", "application/octet-stream")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as response:
            answer: bytes = response.read()
            return answer


def _texts(document: bytes, element: str, child: str) -> list[str]:
    root = ET.fromstring(document)
    space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
    return [found.findtext(f"{space}{child}") or "" for found in root.iter(f"{space}{element}")]


@dataclass(frozen=True, kw_only=True)
class Store:
    """A running store.

    Attributes:
        endpoint: the store's URL.
        access_key: S3 access key id.
        secret_key: S3 secret access key.
        versioned: whether its buckets keep old versions.
    """

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    versioned: bool = False

    def new_bucket(self) -> Bucket:
        """Create a bucket with a new name."""
        bucket = Bucket(name=f"checkpoints-{uuid.uuid4().hex[:12]}", store=self)
        bucket.create()
        return bucket

    def as_environment(self) -> dict[str, str]:
        """Return variables by which a child process finds the store."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
        }


@contextmanager
def running_store(name: str, *, embedded: Callable[[], Endpoints], home: Path) -> Iterator[Store]:
    """Run a store by its name in ``STORES``.

    Args:
        name: ``s3proxy`` is the embedded stack's; the others run in ``home``.
        embedded: a function that starts the stack; called only for ``s3proxy``.
        home: the directory for the store's data.
    """
    program, _, versioned = name.partition("-")
    if program == "s3proxy":
        stack = embedded()
        yield Store(
            endpoint=stack.s3_endpoint, access_key=stack.access_key, secret_key=stack.secret_key.get_secret_value()
        )
    else:
        with built_store(program, home) as endpoint:
            yield Store(endpoint=endpoint, access_key="test", secret_key="test-secret", versioned=bool(versioned))


@contextmanager
def built_store(name: str, home: Path) -> Iterator[str]:
    """Run minio or versitygw on an empty directory, with credentials ``test``/``test-secret``; yield its URL."""
    store = {"minio": Minio, "versitygw": VersityGateway}[name]
    home.mkdir(parents=True, exist_ok=True)
    store.program.build(log=home / "build.log")
    data, versions = home / "data", home / "versions"
    data.mkdir(exist_ok=True)
    versions.mkdir(exist_ok=True)
    address = f"127.0.0.1:{choose_free(avoid=())}"
    program = str(store.program.path)
    command = (
        [program, "server", "--quiet", "--address", address, str(data)]
        if name == "minio"
        else [program, "--port", address, "--quiet", "posix", "--versioning-dir", str(versions), str(data)]
    )
    credentials = {
        "MINIO_ROOT_USER": "test",
        "MINIO_ROOT_PASSWORD": "test-secret",
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
        "ROOT_ACCESS_KEY": "test",
        "ROOT_SECRET_KEY": "test-secret",
    }
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **credentials}, stdout=log, stderr=log)
    try:
        _wait(f"http://{address}")
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def _wait(url: str) -> None:
    for _ in range(200):
        try:
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5).close()
        except urllib.error.HTTPError as answer:
            answer.close()
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"{url} does not answer")
