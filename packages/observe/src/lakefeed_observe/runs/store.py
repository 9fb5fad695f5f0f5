"""Store the traces of runs, one file per run: in the user's folder, and beside the checkpoint if configured."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import Field

from lakefeed.clients.environment import default_home, process_start, read_own_file, write_own_file
from lakefeed.clients.http import Response, exchange
from lakefeed.clients.s3 import configured_keys, object_url, prefix_url, read_listing, signed_headers
from lakefeed.config.addresses import is_local, local_folder
from lakefeed.config.connections import S3, Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import Unreachable
from lakefeed.feed.progress import FinishedBatch
from lakefeed.json_model import JsonModel, Seconds, Time
from lakefeed.ledger.outcomes import Reason
from lakefeed.messages.text import json_line
from lakefeed.monitor.history import Point
from lakefeed.monitor.model import Driver, Failure, PartitionLag, RunTotals
from lakefeed.operations.live_status import own_path
from lakefeed_observe.runs.settings import runs_of_file

RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}")
MB = 1 << 20
UPLOAD_SECONDS = 5.0
READ_SECONDS = 10.0
MOST_BYTES = 1 << 25
MOST_READ = 20
"""The most traces that are read beside the checkpoint: reading a trace costs a request."""
MOST_LISTS = 100


class TraceEvent(JsonModel):
    """An event of the run."""

    at: Time
    kind: str
    message: str
    details: dict[str, Any] = Field({})


class TraceDriver(Driver):
    """The process that ran the feed; ``started`` distinguishes this process from a later one with the same pid."""

    started: str | None = None


class TraceRequests(JsonModel):
    """The S3 requests of all batches."""

    total: int = 0
    errors: int = 0
    by_class: dict[str, int] = Field({})
    batches_over_budget: int = 0


class Trace(JsonModel):
    """The trace of one run. docs/operate.md lists the keys; their names and meanings do not change."""

    version: int = 1
    run: str = Field(pattern=RUN_ID.pattern)
    feed: str = ""
    sink: str = ""
    driver: TraceDriver = TraceDriver()
    fence: str | None = None
    began_at: Time | None = None
    written_at: Time | None = None
    ended_at: Time | None = None
    end: str | None = None
    error: Failure | None = None
    start: dict[str, Any] = Field({})
    totals: RunTotals = RunTotals()
    replayed: int = 0
    restarts: int = 0
    lag: int | None = None
    lag_seconds: Seconds | None = None
    requests: TraceRequests = TraceRequests()
    files: int = 0
    bytes_out: int = 0
    phases: dict[str, Seconds] = Field({})
    dead_letters: tuple[Reason, ...] = ()
    schema_changes: tuple[TraceEvent, ...] = ()
    errors: tuple[TraceEvent, ...] = ()
    actions: tuple[TraceEvent, ...] = ()
    upkeep: tuple[TraceEvent, ...] = ()
    events: tuple[TraceEvent, ...] = ()
    event_counts: dict[str, int] = Field({})
    partitions: tuple[PartitionLag, ...] = ()
    points: tuple[Point, ...] = ()
    batches: tuple[FinishedBatch, ...] = ()

    @classmethod
    def read(cls, text: str | bytes) -> Trace | None:
        """Parse a trace, or return None. Without an end in the trace, ``end`` is running, cut (killed) or unknown."""
        try:
            trace = cls.model_validate_json(text)
        except ValueError:
            return None
        if trace.end is not None:
            return trace
        # On another machine than the driver's, it is unknown whether the driver still runs.
        end, driver = "unknown", trace.driver
        if driver.host == socket.gethostname():
            is_running = driver.started is not None and process_start(driver.pid) == driver.started
            end = "running" if is_running else "cut"
        return trace.model_copy(update={"end": end})

    @property
    def json_line(self) -> str:
        """The trace as JSON, limited in size, without secrets."""
        return json_line(self.as_dict())


class LocalRuns:
    """The traces of one feed in a folder of this machine, which has no other feed's traces.

    Args:
        most: how many traces ``prune`` keeps, within ``most_mb``.
    """

    def __init__(self, folder: Path, *, most: int = 50, most_mb: int = 50) -> None:
        self.folder = folder
        self._most, self._most_bytes = most, most_mb * MB

    def save(self, trace: Trace) -> None:
        """Replace the file of a run; may raise OSError."""
        write_own_file(self.folder / f"{trace.run}.json", trace.json_line)

    def prune(self) -> None:
        """Delete the oldest traces that exceed the number or the size limit, but never the newest trace."""
        total = 0
        with suppress(OSError):
            for number, path in enumerate(self._paths()):
                total += path.stat().st_size
                if number and (number >= self._most or total > self._most_bytes):
                    path.unlink(missing_ok=True)

    def traces(self) -> Iterator[Trace]:
        """Yield the traces, newest first; skip files that cannot be read."""
        for path in self._paths():
            if (trace := Trace.read(read_own_file(path) or "")) is not None:
                yield trace

    def _paths(self) -> list[Path]:
        try:
            found = [path for path in self.folder.iterdir() if path.suffix == ".json" and RUN_ID.fullmatch(path.stem)]
        except OSError:
            return []
        return sorted(found, key=lambda path: path.stem, reverse=True)


def runs_of(feed: str) -> list[LocalRuns]:
    """Return the traces of all feeds of this name on this machine; feeds with different sinks may share a name."""
    found = []
    with suppress(OSError, RuntimeError):
        for folder in sorted((default_home() / "run" / "runs").iterdir()):
            runs = LocalRuns(folder)
            newest = next(runs.traces(), None)
            if newest is not None and newest.feed == feed:
                found.append(runs)
    return found


def local_runs(config: PipelineConfig) -> LocalRuns | None:
    """Return the traces of a feed on this machine; None if ``runs.keep`` is no, or the user has no home folder."""
    path = own_path("runs", config)
    settings = runs_of_file(config)
    if path is None or settings.keep == "no":
        return None
    return LocalRuns(Path(path).with_suffix(""), most=settings.most, most_mb=settings.most_mb)


def traces_of(config: PipelineConfig, *, connections: Connections) -> list[Trace]:
    """Return the traces of a feed: this machine's traces, and traces that only the checkpoint's folder has."""
    runs = local_runs(config)
    found = {trace.run: trace for trace in (runs.traces() if runs is not None else ())}
    if runs_of_file(config).keep == "checkpoint" and config.checkpoint:
        beside = runs_beside(config).traces() if is_local(config.checkpoint) else None
        for trace in beside or StoredRuns(config.checkpoint, s3=connections.s3).traces(known=found):
            found.setdefault(trace.run, trace)
    return list(found.values())


def runs_beside(config: PipelineConfig) -> LocalRuns:
    return LocalRuns(Path(f"{local_folder(config.checkpoint)}.runs"))


class StoredRuns:
    """Traces of finished runs in a folder beside a checkpoint, ``<checkpoint>.runs/``."""

    def __init__(self, checkpoint: str, *, s3: S3) -> None:
        parts = urlsplit(checkpoint.rstrip("/"))
        self._bucket, self._prefix = parts.netloc, f"{parts.path.strip('/')}.runs/"
        self._s3 = s3

    def save(self, trace: Trace) -> None:
        """Store a trace, with one request; may raise AccessDenied or Unreachable."""
        url = object_url(self._bucket, f"{self._prefix}{trace.run}.json", s3=self._s3)
        self._ask("PUT", url, seconds=UPLOAD_SECONDS, body=trace.json_line.encode())

    def traces(self, *, known: Mapping[str, object]) -> Iterator[Trace]:
        """Yield the newest traces except the ids in ``known``, with a request per 1,000 names and one per trace."""
        keys = self._keys()
        ids = [Path(key).stem for key in keys if key.startswith(self._prefix) and RUN_ID.fullmatch(Path(key).stem)]
        for run_id in sorted(set(ids) - known.keys(), reverse=True)[:MOST_READ]:
            url = object_url(self._bucket, f"{self._prefix}{run_id}.json", s3=self._s3)
            trace = Trace.read(self._ask("GET", url, seconds=READ_SECONDS).body)
            if trace is not None and trace.run == run_id:
                yield trace

    def _keys(self) -> list[str]:
        """Return the names of the traces, oldest first; the store lists up to 1,000 names per answer."""
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
        hint = "lakefeed runs list --feed NAME shows the runs of this machine"
        headers = signed_headers(url, keys=keys, region=self._s3.region, method=method, body=body)
        content = body if method == "PUT" else None
        try:
            answer = exchange(method, url, seconds=seconds, headers=headers, body=content, most_bytes=MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unreachable(f"the S3 store does not answer: {reason}", where=where, hint=hint) from None
        if not 200 <= answer.status < 300:
            raise Unreachable(f"the S3 store answers with HTTP status {answer.status}", where=where, hint=hint)
        return answer
