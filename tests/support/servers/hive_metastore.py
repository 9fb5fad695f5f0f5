"""Run a Hive metastore from PySpark's jars, the version that Spark's Hive client is made for."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lakefeed.clients.spark import jars
from lakefeed.clients.spark.driver_jvm import require_java
from lakefeed_local.ports import LOOPBACK, choose_free
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
        """Within this block all changes of tables land and are reported as conflicts."""
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
    folder = Path(tempfile.mkdtemp(prefix="lakefeed-metastore-"))
    port = choose_free(avoid=())
    command: list[str | Path] = [
        require_java(),
        "-Xmx384m",
        "-Djava.net.preferIPv4Stack=true",
        "-XX:TieredStopAtLevel=1",
        f"-Dderby.stream.error.file={folder / 'derby.log'}",
        "-cp",
        os.pathsep.join(map(str, _class_path())),
        Path(__file__).parent / "HiveMetastore.java",
        str(port),
        folder,
    ]
    settings = "\n".join(f"{key}={value}" for key, value in (properties or {}).items())
    try:
        with running(
            command,
            log=folder / "log",
            ready=lambda: _listens(port),
            environment={**os.environ, "METASTORE_PROPERTIES": settings},
        ):
            yield HiveMetastore(port, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _class_path() -> list[Path]:
    import pyspark

    bundled = Path(pyspark.__file__).parent / "jars"
    # Use the S3 client of the sessions.
    return [*sorted(bundled.glob("*.jar")), *jars.fetch(["spark"])]


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True
