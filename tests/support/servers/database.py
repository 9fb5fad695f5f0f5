"""A database server of the tests, and a database in it."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from tests.support.servers.process import Restartable


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
        """Runs statements, each on its own; the rows of the last one, if it has any."""

    def new_database(self) -> Self:
        """An empty database of the same server, for one test."""
        name = f"test_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name}")
        return replace(self, database=name)
