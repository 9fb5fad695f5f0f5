"""Find free ports on the loopback interface, and the processes that listen on used ports."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from lakefeed.errors import PortTaken

LOOPBACK = "127.0.0.1"

# Ports are chosen below Linux's range for outgoing connections (32768 and up), so that no client's connection uses a
# remembered port between `down` and `up`.
_FIRST, _LAST = 20000, 31999
_ATTEMPTS = 200


def is_free(port: int) -> bool:
    """Return whether a server could listen on the port now."""
    with socket.socket() as probe:
        # Servers set this option, too. Without it, old connections in TIME_WAIT would block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def choose_free(*, avoid: Collection[int]) -> int:
    for _ in range(_ATTEMPTS):
        port = random.randint(_FIRST, _LAST)  # noqa: S311 (not a secret)
        if port not in avoid and is_free(port):
            return port
    what = f"no free port was found in {_ATTEMPTS} attempts between {_FIRST} and {_LAST}"
    raise PortTaken(
        what, where=LOOPBACK, hint="end programs that listen there, or choose ports: lakefeed local up --help"
    )


def owner_of(port: int) -> str | None:
    """Return name and pid of the process that listens on a port; None if this user or system does not show it."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:  # 0A means LISTEN
                sockets.add(f"socket:[{fields[9]}]")
    if not sockets:
        return None
    for folder in Path("/proc").glob("[0-9]*"):
        if _open_files_of(folder) & sockets:
            with suppress(OSError):
                return f"{(folder / 'comm').read_text().strip()} (pid {folder.name})"
    return None


def _open_files_of(process: Path) -> set[str]:
    """Return the open files of a process, with sockets as ``socket:[INODE]``; empty if this user may not see them."""
    links = set()
    with suppress(OSError):
        for link in (process / "fd").iterdir():
            with suppress(OSError):  # The process may have just closed this file.
                links.add(str(link.readlink()))
    return links


def taken(port: int, *, part: str) -> PortTaken:
    owner = owner_of(port)
    return PortTaken(
        f"port {port} for {part} is taken" + (f" by {owner}" if owner else ""),
        where=f"{LOOPBACK}:{port}",
        hint=f"stop the process at this port, choose another port with --port-{part}, or leave the option out",
    )
