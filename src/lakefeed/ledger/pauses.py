"""Keeps a feed's pause where its next start finds it, on any machine.

It is an object of its own beside the checkpoint: a start lists the location anyway, so that it costs a request only
where there is one. In ``lakefeed.json`` a driver elsewhere could overwrite it with what it has read before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

from lakefeed.clients.environment import default_home
from lakefeed.clients.local_files import OWNER_ONLY, write_whole
from lakefeed.config.models import PipelineConfig
from lakefeed.ledger.checkpoint import Owner
from lakefeed.monitor.model import Pause
from lakefeed.monitor.text import one_line

PAUSE_FILE = "lakefeed-pause.json"
UNREADABLE = "the pause cannot be read: another version of lakefeed, or another program, has written it"


class PauseStore(Protocol):
    """Keeps the pause of one feed."""

    def read(self) -> Pause | None:
        """Return the pause; None if the feed is not paused."""

    def write(self, pause: Pause) -> None:
        """Keep this pause."""

    def clear(self) -> None:
        """Forget the pause, if there is one."""


class PauseFiles(Protocol):
    """The files of a checkpoint location, by names relative to it."""

    def names(self) -> Sequence[str]: ...

    def read(self, name: str) -> str: ...

    def write(self, name: str, text: str) -> None: ...

    def remove(self, name: str) -> None: ...


class CheckpointPauses:
    """Keeps the pause of a feed beside its checkpoint."""

    def __init__(self, files: PauseFiles) -> None:
        self._files = files

    def read(self) -> Pause | None:
        return pause_of(self._files.read(PAUSE_FILE)) if PAUSE_FILE in self._files.names() else None

    def write(self, pause: Pause) -> None:
        self._files.write(PAUSE_FILE, json.dumps(pause.as_dict()))

    def clear(self) -> None:
        self._files.remove(PAUSE_FILE)


class LocalPauses:
    """Keeps the pause of a feed without a checkpoint in the user's own folder: other machines do not know of it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @classmethod
    def of(cls, config: PipelineConfig) -> LocalPauses:
        """Return where the pause of a pipeline is kept; nowhere if the user has no home."""
        brokers = config.source.kafka.bootstrap_servers if config.source.kafka else ""
        identity = "\n".join((config.name, brokers, Owner.of(config).sink))
        digest = hashlib.sha256(identity.encode()).hexdigest()[:24]
        try:
            return cls(default_home() / "run" / "pauses" / f"{digest}.json")
        except RuntimeError:
            return cls(None)

    def read(self) -> Pause | None:
        try:
            return None if self._path is None else pause_of(self._path.read_text("utf-8"))
        except FileNotFoundError:
            return None

    def write(self, pause: Pause) -> None:
        if self._path is None:
            raise OSError("the user has no home")
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(self._path, json.dumps(pause.as_dict()), overwrite=True, mode=OWNER_ONLY)

    def clear(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def pause_of(text: str) -> Pause:
    """Read a stored pause; one that cannot be read is a pause too, so that no feed resumes by a broken file."""
    try:
        document = json.loads(text)
        return Pause(
            reason=one_line(str(document["reason"])),
            by=one_line(str(document["by"])),
            at=datetime.fromisoformat(document["at"]).timestamp(),
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return Pause(reason=UNREADABLE, by="unknown", at=0.0)
