"""The traces of a feed's runs: in the user's own folder, and beside its checkpoint where the pipeline says so."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from lakefeed.clients.http import Response, exchange
from lakefeed.clients.s3 import configured_keys, object_url, prefix_url, read_listing, signed_headers
from lakefeed.config.connections import S3, Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.storage import is_local, local_folder
from lakefeed.errors import Unreachable
from lakefeed.monitor.text import json_line
from lakefeed.operations.followers import FollowedRun
from lakefeed.operations.live_status import own_path
from lakefeed_observe.runs.follower import Upload, tracing
from lakefeed_observe.runs.settings import runs_of_file
from lakefeed_observe.runs.store import RUN_ID, LocalRuns, with_end

UPLOAD_SECONDS = 5.0
READ_SECONDS = 10.0
MOST_BYTES = 1 << 25
MOST_READ = 20
"""Traces beside the checkpoint that are read: each is a request."""
MOST_LISTS = 100


def follow(run: FollowedRun) -> AbstractContextManager[None]:
    """Keep the trace of a run; the trace of a failed start is kept on this machine only."""
    upload = None if run.is_failed_start else upload_of(run.config, connections=run.connections)
    return tracing(local_runs(run.config), run.monitor, upload=upload)


def local_runs(config: PipelineConfig) -> LocalRuns | None:
    """Return the traces of a feed on this machine; None if none are kept, or the user has no home."""
    path = own_path("runs", config)
    settings = runs_of_file(config)
    if path is None or settings.keep == "no":
        return None
    return LocalRuns(Path(path).with_suffix(""), most=settings.most, most_mb=settings.most_mb)


def upload_of(config: PipelineConfig, *, connections: Connections) -> Upload | None:
    """Return what puts the trace of a finished run beside the checkpoint; None where the pipeline keeps it here."""
    if runs_of_file(config).keep != "checkpoint" or not config.checkpoint:
        return None
    if is_local(config.checkpoint):
        return _runs_beside(config).save
    return StoredRuns(config.checkpoint, s3=connections.s3).save


def traces_of(config: PipelineConfig, *, connections: Connections) -> list[dict[str, Any]]:
    """Return the traces of a feed, each once; those beside the checkpoint are of finished runs."""
    runs = local_runs(config)
    found = {trace["run"]: trace for trace in (runs.traces() if runs is not None else [])}
    if runs_of_file(config).keep == "checkpoint" and config.checkpoint:
        if is_local(config.checkpoint):
            stored = _runs_beside(config).traces()
        else:
            stored = StoredRuns(config.checkpoint, s3=connections.s3).traces(known=found)
        for trace in stored:
            found.setdefault(trace["run"], trace)
    return list(found.values())


def _runs_beside(config: PipelineConfig) -> LocalRuns:
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
