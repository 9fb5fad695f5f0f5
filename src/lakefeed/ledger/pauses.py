"""Stores a feed's pause beside its checkpoint, where the feed's next start reads it on any machine.

The pause has its own file, because a driver could overwrite ``lakefeed.json`` with an older copy. A start lists the
location anyway, so it needs one more request only if the feed is paused.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Protocol

from lakefeed.clients.environment import default_home, write_own_file
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.json_model import JsonModel, Time, iso
from lakefeed.ledger.checkpoint import CheckpointFiles, Owner, StoredCheckpoint, read_note, require_owner
from lakefeed.messages.text import one_line

PAUSE_FILE = "lakefeed-pause.json"
UNREADABLE = "the pause cannot be read: another version of lakefeed or another program has written it"


class Pause(JsonModel):
    reason: str
    by: str
    at: Time

    @property
    def text(self) -> str:
        """One line: who paused the feed, since when, and why."""
        why = f": {self.reason}" if self.reason else ", without a reason"
        return one_line(f"paused by {self.by} since {iso(self.at)}{why}", most=2000)


class PauseStore(Protocol):
    def read(self) -> Pause | None: ...

    def write(self, pause: Pause) -> None: ...

    def clear(self) -> None: ...


class PauseFiles(CheckpointFiles, Protocol):
    def write(self, name: str, text: str) -> None: ...

    def remove(self, name: str) -> None: ...


class CheckpointPauses:
    """Stores the pause of a feed beside its checkpoint."""

    def __init__(self, files: PauseFiles) -> None:
        self._files = files

    def read(self) -> Pause | None:
        return pause_of(self._files.read(PAUSE_FILE)) if PAUSE_FILE in self._files.names() else None

    def write(self, pause: Pause) -> None:
        self._files.write(PAUSE_FILE, pause.model_dump_json())

    def clear(self) -> None:
        self._files.remove(PAUSE_FILE)


class LocalPauses:
    """Stores the pause of a feed without a checkpoint, in the user's home: other machines cannot read it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @classmethod
    def of(cls, config: PipelineConfig) -> LocalPauses:
        """Return the store for a pipeline's pause; if the user has no home, the store is empty and cannot write."""
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
    """Read a stored pause. Unreadable text counts as a pause: a broken file must not make the feed resume."""
    try:
        pause = Pause.model_validate_json(text)
    except ValueError:
        return Pause(reason=UNREADABLE, by="unknown", at=0.0)
    return Pause(reason=one_line(pause.reason), by=one_line(pause.by), at=pause.at)


def stored_pause(config: PipelineConfig, connections: Connections) -> PauseStore:
    """Return the store for the pause of a feed that does not run; the store works without Spark.

    Raises:
        CheckpointMismatch: the checkpoint belongs to another feed.
        ConfigError: the feed has no checkpoint, and its sink has no ledger, so the next start would not find a pause.
    """
    if config.has_many_tables or config.resumes_by_ledger:
        return LocalPauses.of(config)
    if not config.checkpoint:
        raise ConfigError(
            f"feed '{config.name}' has no checkpoint that could store a pause for its next start",
            where="checkpoint",
            hint="set checkpoint, or pause the feed while it runs",
        )
    files = StoredCheckpoint(config.checkpoint, s3=connections.s3)
    require_owner(read_note(files, where=config.checkpoint), Owner.of(config), where=config.checkpoint)
    return CheckpointPauses(files)


def pause_of_next_start(config: PipelineConfig, connections: Connections) -> Pause | None:
    """Return the stored pause that the next start would wait for; None if there is none, or it cannot be read."""
    try:
        return stored_pause(config, connections).read()
    except (LakefeedError, OSError):
        return None
