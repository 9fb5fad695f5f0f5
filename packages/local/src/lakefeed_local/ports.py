"""Free ports on the loopback interface, and the processes that hold the others."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from lakefeed.errors import PortTaken

LOOPBACK = "127.0.0.1"

# Below the range from which Linux takes the ports of outgoing connections (32768 and up), so that a port we
# remember is not lost to a passing client between `down` and `up`.
_FIRST, _LAST = 20000, 31999
_ATTEMPTS = 200


def is_free(port: int) -> bool:
    """Check that a server could listen there now."""
    with socket.socket() as probe:
        # As servers do: connections of the previous run that are in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def choose_free(*, avoid: Collection[int]) -> int:
    """Return a free port, not one of ``avoid``."""
    for _ in range(_ATTEMPTS):
        port = random.randint(_FIRST, _LAST)  # noqa: S311 (not a secret)
        if port not in avoid and is_free(port):
            return port
    raise PortTaken(f"no free port was found in {_ATTEMPTS} attempts between {_FIRST} and {_LAST}", where=LOOPBACK)


def owner_of(port: int) -> str | None:
    """Return name and pid of the process that listens on a port, if it is ours to see (Linux)."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:  # 0A: listening
                sockets.add(f"socket:[{fields[9]}]")
    if not sockets:
        return None
    for folder in Path("/proc").glob("[0-9]*"):
        if _open_files_of(folder) & sockets:
            with suppress(OSError):
                return f"{(folder / 'comm').read_text().strip()} (pid {folder.name})"
    return None


def _open_files_of(process: Path) -> set[str]:
    """Return the open files of a process, a socket as ``socket:[INODE]``; none if we may not see them."""
    links = set()
    with suppress(OSError):
        for link in (process / "fd").iterdir():
            with suppress(OSError):  # Closed in the meantime.
                links.add(str(link.readlink()))
    return links


def taken(port: int, *, part: str) -> PortTaken:
    """Return the error for a requested port that is not free."""
    owner = owner_of(port)
    return PortTaken(
        f"port {port} for {part} is taken" + (f" by {owner}" if owner else ""),
        where=f"{LOOPBACK}:{port}",
        hint=f"stop it, or choose another with --port-{part}, or leave the option out: a free port is found",
    )
