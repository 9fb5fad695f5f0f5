"""MinIO's client: buckets, object versions, and the trace that referees a measurement."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
import urllib.request
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lakefeed.bench import trace
from lakefeed.errors import JobFailed, Unreachable
from lakefeed.local import Endpoints
from lakefeed.local.go import GoProgram
from lakefeed.local.part import NotReady, ask

MC = GoProgram(name="mc", package="github.com/minio/mc", version="v0.0.0-20250313080218-cf909e1063a9")

_ALIAS = "bench"
_MARK_SECONDS = 60.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is in a bucket at the end.

    Attributes:
        objects: that a listing shows.
        versions: of all objects, the shown ones among them; delete markers not counted.
        delete_markers: objects deleted from a versioned bucket leave them.
        data_files: shown objects that are Parquet files.
    """

    objects: int
    versions: int
    delete_markers: int
    data_files: int


class MinioClient:
    """``mc``, built at its first use and given the endpoint by its environment: no secret on a command line.

    Args:
        endpoints: of a local stack whose store is MinIO.
        home: a directory for its configuration and its output.
    """

    def __init__(self, endpoints: Endpoints, *, home: Path) -> None:
        self._endpoints = endpoints
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        MC.build(log=home / "mc-build.log")

    def make_bucket(self, name: str, *, versioned: bool) -> None:
        """Makes a bucket.

        Raises:
            JobFailed: mc could not.
        """
        self._run("mb", f"{_ALIAS}/{name}")
        if versioned:
            self._run("version", "enable", f"{_ALIAS}/{name}")

    def kept(self, bucket: str) -> Kept:
        """What the bucket holds, by S3's ListObjectVersions.

        Raises:
            JobFailed: mc could not say.
        """
        listed = [each for each in self._run("ls", "--recursive", "--versions", f"{_ALIAS}/{bucket}") if "key" in each]
        return count(listed)

    def trace(self, name: str) -> Trace:
        """A trace of all requests to the store, to be used as a context manager."""
        return Trace(self, self._endpoints, file=self.home / f"{name}.trace.json")

    def command(self, *arguments: str) -> list[str]:
        """A command line of mc that prints JSON."""
        return [str(MC.path), "--json", *arguments]

    def environment(self) -> dict[str, str]:
        """The environment that configures mc: alias, address and keys."""
        scheme, _, address = self._endpoints.s3_endpoint.partition("://")
        secret = self._endpoints.secret_key.get_secret_value()
        return {
            **os.environ,
            "MC_CONFIG_DIR": str(self.home / "mc"),
            f"MC_HOST_{_ALIAS}": f"{scheme}://{self._endpoints.access_key}:{secret}@{address}",
        }

    def _run(self, *arguments: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            self.command(*arguments), env=self.environment(), capture_output=True, text=True, check=False
        )
        documents = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        failed = [each["error"]["message"] for each in documents if each.get("status") == "error"]
        if done.returncode != 0 or failed:
            raise JobFailed(f"mc {arguments[0]} failed: {'; '.join(failed) or done.stderr.strip()}")
        return documents


class Trace:
    """Requests from the moment the context is entered until :meth:`finish`.

    A trace has no beginning that one could see: the client connects in the background. Hence a request for a
    bucket of a random name is made until it shows in the trace, and another at the end.
    """

    def __init__(self, client: MinioClient, endpoints: Endpoints, *, file: Path) -> None:
        self._client = client
        self._endpoints = endpoints
        self._file = file
        self._begin = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._file.open("wb") as output:
            self._process = subprocess.Popen(
                self._client.command("admin", "trace", _ALIAS),
                env=self._client.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            self._begin = self._marked(repeat=True)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def finish(self) -> list[trace.Request]:
        """The requests since the beginning. Those that come later, such as a check of the result, do not count.

        Raises:
            Unreachable: the trace has stopped.
        """
        end = self._marked(repeat=False)
        return trace.between(trace.parse(self._file.read_text()), begin=self._begin, end=end)

    def _marked(self, *, repeat: bool) -> str:
        """Makes a mark and waits until the trace has it."""
        deadline = time.monotonic() + _MARK_SECONDS
        mark = self._mark()
        while mark not in self._file.read_text():
            if time.monotonic() > deadline or self._process is None or self._process.poll() is not None:
                raise Unreachable(
                    "the store's trace does not show a request that was made",
                    where=str(self._file),
                    hint="read the file",
                )
            time.sleep(_POLL_SECONDS)
            if repeat and mark not in self._file.read_text():
                mark = self._mark()
        return mark

    def _mark(self) -> str:
        name = f"mark-{uuid.uuid4().hex}"
        # Refused, as it is not signed and there is no such bucket: the trace has it all the same.
        with contextlib.suppress(NotReady):
            ask(urllib.request.Request(f"{self._endpoints.s3_endpoint}/{name}", method="HEAD"))  # noqa: S310
        return name

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def count(listed: list[dict[str, Any]]) -> Kept:
    """Counts the lines of ``mc ls --versions``: newest first for each key."""
    newest: dict[str, dict[str, Any]] = {}
    for each in listed:
        newest.setdefault(each["key"], each)
    shown = [key for key, each in newest.items() if not each.get("isDeleteMarker")]
    markers = sum(bool(each.get("isDeleteMarker")) for each in listed)
    return Kept(
        objects=len(shown),
        versions=len(listed) - markers,
        delete_markers=markers,
        data_files=sum(key.endswith(".parquet") for key in shown),
    )
