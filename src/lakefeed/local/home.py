"""The stack's directory, and what is remembered in it between ``down`` and ``up``."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from lakefeed.clients.environment import stack_environment_file
from lakefeed.clients.s3_signature import Keys
from lakefeed.errors import ConfigError, WorldError


class Memory(BaseModel):
    """What ``up`` decides once and keeps.

    Attributes:
        store: which object store the data is in.
        cluster_id: Kafka's, as its storage was formatted with.
        ports: by the name of what listens.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str
    cluster_id: str
    ports: dict[str, int]


@dataclass(frozen=True)
class Home:
    """Where things are. Erasing removes these names only, so a home that is also used otherwise is safe."""

    root: Path

    @property
    def logs(self) -> Path:
        """One file a part."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """Pid files, and the environment that other commands find a running stack by."""
        return self.root / "run"

    @property
    def settings(self) -> Path:
        """Configuration files of the parts, rewritten at each start; some hold the S3 secret."""
        return self.root / "settings"

    @property
    def data(self) -> Path:
        """What must survive: topics, schemas, objects, and the catalog."""
        return self.root / "data"

    @property
    def catalog_file(self) -> Path:
        """The Iceberg catalog."""
        return self.data / "catalog.db"

    @property
    def memory_file(self) -> Path:
        """See :class:`Memory`."""
        return self.root / "stack.json"

    @property
    def credentials_file(self) -> Path:
        """The S3 key pair, made at random at the first ``up``; readable by its owner only."""
        return self.root / "credentials"

    @property
    def lock_file(self) -> Path:
        """Held during ``up`` and ``down``."""
        return self.root / "stack.lock"

    @property
    def environment_file(self) -> Path:
        """See :class:`lakefeed.clients.environment.StackEnvironment`; readable by its owner only."""
        return stack_environment_file(self.root)

    def log_of(self, part: str) -> Path:
        """The log of one part."""
        return self.logs / f"{part}.log"

    def pid_file_of(self, part: str) -> Path:
        """The pid file of one part."""
        return self.run / f"{part}.pid"

    @property
    def _folders(self) -> tuple[Path, ...]:
        return (self.data, self.settings, self.run, self.logs)

    def is_ours(self) -> bool:
        """Whether a stack was made here. The lock file is the sign: it comes first and goes last."""
        return self.lock_file.exists()

    def make(self) -> None:
        """Makes the directories, for their owner only.

        Raises:
            ConfigError: they cannot be made, or somebody else's have the same names: ``erase`` would remove them.
        """
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            foreign = [] if self.is_ours() else [folder.name for folder in self._folders if folder.exists()]
            if foreign:
                raise ConfigError(
                    f"the directory already has {', '.join(foreign)}, not made by a local stack",
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
                hint="choose another with --home or LAKEFEED_HOME",
            ) from error

    def erase(self) -> None:
        """Removes everything that the stack has made, and the home itself if nothing else is in it.

        Raises:
            WorldError: something cannot be removed.
        """
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():
                raise WorldError("not everything could be removed", where=str(folder), hint="remove it by hand")
        for file in (self.memory_file, self.credentials_file, self.lock_file):
            file.unlink(missing_ok=True)
        if self.root.is_dir() and not any(self.root.iterdir()):
            self.root.rmdir()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps two commands from starting or stopping the same stack at once; waits for the other one."""
        self.make()
        while True:
            with self.lock_file.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                # Its last holder may have erased the home: then this is the lock of a file that is gone.
                if self.lock_file.exists() and os.fstat(file.fileno()).st_ino == self.lock_file.stat().st_ino:
                    yield
                    return
            self.make()

    def recall(self) -> Memory | None:
        """What was remembered, or None before the first ``up``.

        Raises:
            ConfigError: the file is not what we wrote.
        """
        try:
            return Memory.model_validate_json(self.memory_file.read_text())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise ConfigError(
                "the local stack's memory cannot be read",
                where=str(self.memory_file),
                hint="start over, without its data: lakefeed local down --erase",
            ) from error

    def remember(self, memory: Memory) -> None:
        """Keeps it for next time."""
        write_private(self.memory_file, memory.model_dump_json(indent=2) + "\n")

    def credentials(self) -> Keys:
        """The S3 key pair; made if there is none yet."""
        try:
            access_key, secret_key = self.credentials_file.read_text().split()
        except FileNotFoundError:
            access_key, secret_key = secrets.token_hex(10).upper(), secrets.token_urlsafe(30)
            write_private(self.credentials_file, f"{access_key}\n{secret_key}\n")
        return Keys(access_key=access_key, secret_key=SecretStr(secret_key))


def write_private(file: Path, text: str) -> None:
    """Writes a whole file that only its owner can read, at once or not at all."""
    temporary = file.with_name(f".{file.name}.new")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)
    temporary.replace(file)
