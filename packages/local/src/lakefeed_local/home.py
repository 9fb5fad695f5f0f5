"""The directory of a local stack: its settings, logs and pid files, and data that remain after ``down``."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from lakefeed.clients.environment import stack_environment_file, write_whole
from lakefeed.clients.s3 import Keys
from lakefeed.errors import ConfigError, WorldError


class Memory(BaseModel):
    """Values that the first ``up`` chooses and later calls reuse: the store, Kafka's cluster id, ports by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str
    cluster_id: str
    ports: dict[str, int]


class Home:
    """The paths in one directory. ``erase`` removes only these paths, so that other files in the directory are safe.

    Attributes:
        settings: configuration files of the servers, rewritten at every start; some contain the S3 secret.
        data: topics, schemas, objects and the catalog.
        run: pid files, and the file with the endpoints of the running stack.
        lock_file: locked while ``up`` or ``down`` runs.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.settings = root / "settings"
        self.run = root / "run"
        self.logs = root / "logs"
        self._folders = (self.data, self.settings, self.run, self.logs)
        self.catalog_file = self.data / "catalog.db"
        self.environment_file = stack_environment_file(root)
        self.memory_file = root / "stack.json"
        self.credentials_file = root / "credentials"
        self.lock_file = root / "stack.lock"

    def log_of(self, part: str) -> Path:
        return self.logs / f"{part}.log"

    def pid_file_of(self, part: str) -> Path:
        return self.run / f"{part}.pid"

    def is_ours(self) -> bool:
        """Return True if a stack was created here: the lock file is created first and erased last."""
        return self.lock_file.exists()

    def make(self) -> None:
        """Create the directories, accessible only to their owner.

        Raises:
            ConfigError: they cannot be created, or files of other programs have their names; ``erase`` would remove
                such files.
        """
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            foreign = [] if self.is_ours() else [folder.name for folder in self._folders if folder.exists()]
            if foreign:
                raise ConfigError(
                    f"the directory already contains {', '.join(foreign)}, which no local stack has created",
                    where=str(self.root),
                    hint="choose an empty or new directory with --home or LAKEFEED_HOME",
                )
            self.lock_file.touch(mode=0o600)
            for folder in self._folders:
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the home of the local stack cannot be written: {error.strerror}",
                where=str(self.root),
                hint="choose another folder with --home or LAKEFEED_HOME",
            ) from error

    def erase(self) -> None:
        """Remove everything that the stack has created, and the directory itself if no other file is left in it."""
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():
                hint = "remove the folder with rm -r, perhaps as another user"
                raise WorldError("the folder could not be removed", where=str(folder), hint=hint)
        for file in (self.memory_file, self.credentials_file, self.lock_file):
            file.unlink(missing_ok=True)
        if self.root.is_dir() and not any(self.root.iterdir()):
            self.root.rmdir()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the stack until the block ends, so that one command at a time starts or stops it."""
        self.make()
        while True:
            with self.lock_file.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                # If the previous command has erased the directory, the lock is on a deleted file: lock the new file.
                if self.lock_file.exists() and os.fstat(file.fileno()).st_ino == self.lock_file.stat().st_ino:
                    yield
                    return
            self.make()

    def recall(self) -> Memory | None:
        """Return the stored values; None before the first ``up``."""
        try:
            return Memory.model_validate_json(self.memory_file.read_text())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise ConfigError(
                "the file with the local stack's store and ports cannot be read",
                where=str(self.memory_file),
                hint="remove the stack with its data, then start a new one: lakefeed local down --erase",
            ) from error

    def remember(self, memory: Memory) -> None:
        write_private(self.memory_file, memory.model_dump_json(indent=2) + "\n")

    def credentials(self) -> Keys:
        """Return the S3 key pair; generate it the first time."""
        try:
            access_key, secret_key = self.credentials_file.read_text().split()
        except FileNotFoundError:
            access_key, secret_key = secrets.token_hex(10).upper(), secrets.token_urlsafe(30)
            write_private(self.credentials_file, f"{access_key}\n{secret_key}\n")
        return Keys(access_key=access_key, secret_key=SecretStr(secret_key))


def write_private(file: Path, text: str) -> None:
    """Write a file atomically; only its owner can read the file."""
    write_whole(file, text, overwrite=True, mode=0o600)


def write_properties(file: Path, settings: dict[str, str]) -> None:
    write_private(file, "".join(f"{name}={value}\n" for name, value in settings.items()))
