"""One file's way from a repository to its place: streamed, hashed on the way, renamed when whole.

Only Python's standard library: urllib follows ``HTTPS_PROXY`` and ``NO_PROXY``, OpenSSL ``SSL_CERT_FILE``.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO

from lakefeed.errors import ConfigError, DownloadError

_TRIES = 3
_PAUSE_SECONDS = 0.5
_TIMEOUT_SECONDS = 30
_SLOWEST = 1_000
"""Bytes a second."""
_CHUNK = 1 << 20
_ABANDONED_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to download."""

    name: str
    url: str
    target: Path
    sha256: str
    size: int
    authorization: str | None = field(default=None, repr=False)

    def failed(self, reason: str, hint: str) -> DownloadError:
        """Return the error that says what was to be downloaded, from where, and why it was not."""
        return DownloadError(f"{self.name} was not downloaded: {reason}", where=self.url, hint=hint)


class DownloadStopped(Exception):
    """Given up because another download failed; nothing was left behind."""


class _Again(Exception):
    """A fault that may pass."""

    def __init__(self, reason: str, hint: str) -> None:
        self.reason = reason
        self.hint = hint
        super().__init__(reason)


def download(order: Order, *, report: Callable[[int], None], stop: threading.Event) -> None:
    """Bring one file to its place, or leave the place as it was; set ``stop`` to give up."""
    folder = order.target.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob(".*.part"):  # What a killed process has left behind.
            with suppress(FileNotFoundError):
                if time.time() - part.stat().st_mtime > _ABANDONED_SECONDS:
                    part.unlink()
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=".part")
    except OSError as error:
        raise ConfigError(
            f"the cache directory cannot be written: {error.strerror}",
            where=str(folder),
            hint="set LAKEFEED_CACHE to a directory of yours",
        ) from error
    temporary = Path(name)
    try:
        with open(descriptor, "wb") as file:
            _receive(order, file, report, stop)
        temporary.chmod(0o644)
        temporary.replace(order.target)
    except OSError as error:
        raise order.failed(
            f"it cannot be stored ({error.strerror})", f"free space or fix permissions in {folder}"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _receive(order: Order, file: BinaryIO, report: Callable[[int], None], stop: threading.Event) -> None:
    for attempt in range(1, _TRIES + 1):
        try:
            _receive_once(order, file, report, stop)
            return
        except _Again as fault:
            if attempt == _TRIES:
                raise order.failed(fault.reason, fault.hint) from fault
            stop.wait(_PAUSE_SECONDS * attempt)


def _receive_once(order: Order, file: BinaryIO, report: Callable[[int], None], stop: threading.Event) -> None:
    file.seek(0)
    file.truncate()
    digest = hashlib.sha256()
    arrived = 0
    with closing(_chunks(order)) as chunks:
        for chunk in chunks:
            if stop.is_set():
                raise DownloadStopped
            arrived += len(chunk)
            if arrived > order.size:
                break
            digest.update(chunk)
            file.write(chunk)
            report(arrived)
    file.flush()
    os.fsync(file.fileno())
    if arrived < order.size:
        raise _Again(f"{arrived} of {order.size} bytes arrived", "try again; whole files are kept")
    if arrived > order.size or digest.hexdigest() != order.sha256:
        actual = digest.hexdigest() if arrived == order.size else f"of more than {order.size} bytes"
        raise order.failed(
            f"its SHA-256 is not the locked one\n  expected: {order.sha256}\n  actual:   {actual}",
            "the repository serves another file under this name: do not use it, and tell its administrator",
        )


def _chunks(order: Order) -> Generator[bytes, None, None]:
    """Yield the bytes as they arrive, and raise every failure as one of ours."""
    request = urllib.request.Request(order.url, headers={"User-Agent": "lakefeed"})  # noqa: S310 (checked scheme)
    if order.authorization:
        request.add_unredirected_header("Authorization", order.authorization)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
            arrived, until = 0, time.monotonic() + _TIMEOUT_SECONDS
            # What has arrived, not a whole chunk: a read would wait for that as long as a byte comes now and then.
            while chunk := response.read1(_CHUNK):
                arrived += len(chunk)
                if time.monotonic() > until:
                    if arrived < _SLOWEST * _TIMEOUT_SECONDS:
                        raise TimeoutError(f"{arrived} bytes in {_TIMEOUT_SECONDS} s")
                    arrived, until = 0, time.monotonic() + _TIMEOUT_SECONDS
                yield chunk
    except urllib.error.HTTPError as error:
        error.close()
        raise _refused(order, error.code) from error
    except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        raise _unreached(order, getattr(error, "reason", None) or error) from error


def _refused(order: Order, status: int) -> Exception:
    """Return the error for an answer without the file."""
    if status in (401, 403):
        return order.failed(
            f"the repository requires other credentials (HTTP {status})",
            "set LAKEFEED_MAVEN_USER and LAKEFEED_MAVEN_PASSWORD",
        )
    if status in (404, 410):
        return order.failed(
            f"the repository does not have it (HTTP {status})",
            "set LAKEFEED_MAVEN_REPOSITORY to a repository that has it, or unset it",
        )
    if status == 429 or status >= 500:
        return _Again(f"the repository answered HTTP {status}", "try again later")
    return order.failed(f"the repository answered HTTP {status}", "open the address in a browser")


def _unreached(order: Order, reason: object) -> Exception:
    """Return the error for a repository that does not answer, or breaks off."""
    if isinstance(reason, FileNotFoundError):
        return _refused(order, 404)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return order.failed(
            f"the repository's certificate is not trusted ({reason.verify_message})",
            "set SSL_CERT_FILE to a bundle with your organisation's certificate authority",
        )
    return _Again(
        f"the repository does not answer ({reason})",
        "check the network, HTTPS_PROXY, or set LAKEFEED_MAVEN_REPOSITORY to a mirror",
    )
