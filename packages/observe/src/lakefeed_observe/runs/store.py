"""Keeps the traces of runs in the user's own folder: a folder a feed, a file a run, readable by the user alone."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lakefeed.clients.environment import default_home, process_start
from lakefeed.monitor.own_files import read_own_file, write_own_file
from lakefeed.monitor.text import json_line

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
