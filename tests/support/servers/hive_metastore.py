"""Run a Hive metastore from PySpark's jars, which have the version of Spark's Hive client."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark

from lakefeed.clients.spark import jars
from lakefeed_local.part import LOOPBACK, choose_free
from tests.support.servers.java import java_command
from tests.support.servers.process import running


@dataclass(frozen=True)
class HiveMetastore:
    """A running metastore, and its folder."""

    port: int
    folder: Path

    @property
    def uri(self) -> str:
        """The metastore's address for clients."""
        return f"thrift://{LOOPBACK}:{self.port}"

    @contextmanager
    def losing_answers(self) -> Iterator[None]:
        """Let all changes of tables land but be reported as conflicts, until the block ends."""
        switch = self.folder / "answers-lost"
        switch.touch()
        try:
            yield
        finally:
            switch.unlink()


@contextmanager
def hive_metastore(*, properties: Mapping[str, str] | None = None) -> Iterator[HiveMetastore]:
    """Run a metastore until the block ends.

    Args:
        properties: Hadoop's settings for the warehouse's store, because the metastore creates the folders of tables.
    """
    port = choose_free(avoid=())
    settings = "\n".join(f"{key}={value}" for key, value in (properties or {}).items())
    with TemporaryDirectory(prefix="lakefeed-metastore-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # Use the S3 client of the Spark sessions.
        path = [*sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar")), *jars.fetch(["spark"])]
        command = java_command(path, Path(__file__).parent / "HiveMetastore.java", port, folder)
        command[1:1] = [f"-Dderby.stream.error.file={folder / 'derby.log'}"]
        with running(
            command,
            log=folder / "log",
            ready=lambda: _listens(port),
            environment={**os.environ, "METASTORE_PROPERTIES": settings},
        ):
            yield HiveMetastore(port, folder)


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True
