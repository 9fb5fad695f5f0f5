"""Keeps the traces of runs: in the user's own folder, a file a run, and beside the checkpoint where that is set."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from lakefeed.clients.environment import default_home, process_start
from lakefeed.clients.http import Response, exchange
from lakefeed.clients.local_files import read_own_file, write_own_file
from lakefeed.clients.s3 import configured_keys, object_url, prefix_url, read_listing, signed_headers
from lakefeed.config.connections import S3, Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.storage import is_local, local_folder
from lakefeed.errors import Unreachable
from lakefeed.messages.text import json_line
from lakefeed.operations.live_status import own_path
from lakefeed_observe.runs.settings import runs_of_file

RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}")
MB = 1 << 20


def runs_folder() -> Path:
    return default_home() / "run" / "runs"


class LocalRuns:
    """The traces of one feed on this machine.

    Args:
        folder: of the feed alone.
        most: so many of the newest are kept, and no more than ``most_mb`` of them.
    """

    def __init__(self, folder: Path, *, most: int = 50, most_mb: int = 50) -> None:
        self.folder = folder
        self._most, self._most_bytes = most, most_mb * MB

    def save(self, trace: Mapping[str, Any]) -> None:
        """Replace the file of a run; raises OSError."""
        write_own_file(self.folder / f"{trace['run']}.json", json_line(trace))

    def prune(self) -> None:
        """Remove the oldest traces that are too many or take too much space; the newest one stays."""
        total = 0
        with suppress(OSError):
            for number, path in enumerate(self._paths()):
                total += path.stat().st_size
                if number and (number >= self._most or total > self._most_bytes):
                    path.unlink(missing_ok=True)

    def traces(self) -> list[dict[str, Any]]:
        """Return the traces, newest first; a file that is no trace is left out."""
        return [trace for path in self._paths() if (trace := _read(path)) is not None]

    def find(self, run_id: str) -> dict[str, Any] | None:
        """Return the trace of a run; None if there is none."""
        return _read(self.folder / f"{run_id}.json") if RUN_ID.fullmatch(run_id) else None

    def _paths(self) -> list[Path]:
        try:
            found = [path for path in self.folder.iterdir() if path.suffix == ".json" and RUN_ID.fullmatch(path.stem)]
        except OSError:
            return []
        return sorted(found, key=lambda path: path.stem, reverse=True)


def runs_of(feed: str) -> list[LocalRuns]:
    """Return the traces of all feeds of this name on this machine: more than one if they have several sinks."""
    found = []
    with suppress(OSError, RuntimeError):
        for folder in sorted(runs_folder().iterdir()):
            runs = LocalRuns(folder)
            newest = next((trace for path in runs._paths() if (trace := _read(path)) is not None), None)
            if newest is not None and newest.get("feed") == feed:
                found.append(runs)
    return found


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(read_own_file(path) or "")
    except ValueError:
        return None
    if not isinstance(document, dict) or not RUN_ID.fullmatch(str(document.get("run"))):
        return None
    return with_end(document)


def with_end(trace: dict[str, Any]) -> dict[str, Any]:
    """Return a trace with how its run has ended: ``running`` or ``cut`` where the run itself has not said."""
    if trace.get("end") is None:
        driver = trace.get("driver") or {}
        pid = driver.get("pid")
        is_here = driver.get("host") == socket.gethostname()
        started = process_start(pid) if is_here and isinstance(pid, int) else None
        is_running = started is not None and started == driver.get("started")
        # Of another machine nothing is known: its process cannot be looked at.
        trace["end"] = "running" if is_running else "cut" if is_here else "unknown"
    return trace


UPLOAD_SECONDS = 5.0
READ_SECONDS = 10.0
MOST_BYTES = 1 << 25
MOST_READ = 20
"""Traces beside the checkpoint that are read: each is a request."""
MOST_LISTS = 100


def local_runs(config: PipelineConfig) -> LocalRuns | None:
    """Return the traces of a feed on this machine; None if none are kept, or the user has no home."""
    path = own_path("runs", config)
    settings = runs_of_file(config)
    if path is None or settings.keep == "no":
        return None
    return LocalRuns(Path(path).with_suffix(""), most=settings.most, most_mb=settings.most_mb)


def traces_of(config: PipelineConfig, *, connections: Connections) -> list[dict[str, Any]]:
    """Return the traces of a feed, each once; those beside the checkpoint are of finished runs."""
    runs = local_runs(config)
    found = {trace["run"]: trace for trace in (runs.traces() if runs is not None else [])}
    if runs_of_file(config).keep == "checkpoint" and config.checkpoint:
        if is_local(config.checkpoint):
            stored = runs_beside(config).traces()
        else:
            stored = StoredRuns(config.checkpoint, s3=connections.s3).traces(known=found)
        for trace in stored:
            found.setdefault(trace["run"], trace)
    return list(found.values())


def runs_beside(config: PipelineConfig) -> LocalRuns:
    return LocalRuns(Path(f"{local_folder(config.checkpoint)}.runs"))


class StoredRuns:
    """Traces of finished runs in a folder beside a checkpoint, ``<checkpoint>.runs/``."""

    def __init__(self, checkpoint: str, *, s3: S3) -> None:
        parts = urlsplit(checkpoint.rstrip("/"))
        self._bucket, self._prefix = parts.netloc, f"{parts.path.strip('/')}.runs/"
        self._s3 = s3

    def save(self, trace: Mapping[str, Any]) -> None:
        """Put a trace, with one request; raises AccessDenied or Unreachable."""
        body = json_line(trace).encode()
        url = object_url(self._bucket, f"{self._prefix}{trace['run']}.json", s3=self._s3)
        self._ask("PUT", url, seconds=UPLOAD_SECONDS, body=body)

    def traces(self, *, known: Mapping[str, object]) -> list[dict[str, Any]]:
        """Return the newest traces but for the known ones: a request for a thousand names, and one for each trace."""
        keys = self._keys()
        ids = [Path(key).stem for key in keys if key.startswith(self._prefix) and RUN_ID.fullmatch(Path(key).stem)]
        found = []
        for run_id in sorted(set(ids) - known.keys(), reverse=True)[:MOST_READ]:
            url = object_url(self._bucket, f"{self._prefix}{run_id}.json", s3=self._s3)
            try:
                document = json.loads(self._ask("GET", url, seconds=READ_SECONDS).body)
            except ValueError:
                continue  # Not ours.
            if isinstance(document, dict) and document.get("run") == run_id:
                found.append(with_end(document))
        return found

    def _keys(self) -> list[str]:
        """Return the names of the traces; the newest are the last ones, and an answer has a thousand."""
        base = prefix_url(self._bucket, self._prefix, s3=self._s3)
        url, found = base, list[str]()
        for _ in range(MOST_LISTS):
            listing = read_listing(self._ask("GET", url, seconds=READ_SECONDS).body)
            found += listing.sizes
            if not listing.is_truncated or not found:
                break
            url = f"{base}&start-after={quote(found[-1], safe='-_.~')}"
        return found

    def _ask(self, method: str, url: str, *, seconds: float, body: bytes = b"") -> Response:
        keys = configured_keys(self._s3)
        where = f"s3a://{self._bucket}/{self._prefix}"
        headers = signed_headers(url, keys=keys, region=self._s3.region, method=method, body=body)
        content = body if method == "PUT" else None
        try:
            answer = exchange(method, url, seconds=seconds, headers=headers, body=content, most_bytes=MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            hint = "lakefeed runs list --feed NAME shows the runs of this machine"
            raise Unreachable(f"the S3 store does not answer: {reason}", where=where, hint=hint) from None
        if not 200 <= answer.status < 300:
            raise Unreachable(f"the S3 store answers with HTTP status {answer.status}", where=where)
        return answer
