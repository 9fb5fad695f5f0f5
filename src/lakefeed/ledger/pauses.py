"""Keeps a feed's pause where its next start finds it, on any machine.

It is an object of its own beside the checkpoint: a start lists the location anyway, so that it costs a request only
where there is one. In ``lakefeed.json`` a driver elsewhere could overwrite it with what it has read before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from lakefeed.clients.environment import default_home, write_own_file
from lakefeed.config.models import PipelineConfig
from lakefeed.json_model import JsonModel, Time, iso
from lakefeed.ledger.checkpoint import Owner
from lakefeed.messages.text import one_line

PAUSE_FILE = "lakefeed-pause.json"
UNREADABLE = "the pause cannot be read: another version of lakefeed, or another program, has written it"


class Pause(JsonModel):
    """A feed's pause: who asked for it, when, and why."""

    reason: str
    by: str
    at: Time

    @property
    def text(self) -> str:
        """The pause in one line: by whom, since when, and why."""
        why = f": {self.reason}" if self.reason else ", without a reason"
        return one_line(f"paused by {self.by} since {iso(self.at)}{why}", most=2000)


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
        self._files.write(PAUSE_FILE, pause.model_dump_json())

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
        write_own_file(self._path, pause.model_dump_json())

    def clear(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def pause_of(text: str) -> Pause:
    """Read a stored pause; one that cannot be read is a pause too, so that no feed resumes by a broken file."""
    try:
        found = Pause.model_validate_json(text)
    except ValueError:
        return Pause(reason=UNREADABLE, by="unknown", at=0.0)
    return Pause(reason=one_line(found.reason), by=one_line(found.by), at=found.at)
