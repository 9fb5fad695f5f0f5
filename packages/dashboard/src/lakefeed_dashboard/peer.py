"""Finds the user at the other end of a loopback connection: a port on loopback is open to all users of a machine."""

from __future__ import annotations

import os
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

ESTABLISHED = "01"
ROOT = 0
Address = tuple[str, int]


def is_own_user(client: Address, server: Address, *, folder: Path = Path("/proc/net")) -> bool:
    """Check that the client's end belongs to this process's user, or to root; False where it cannot be known."""
    return uid_of(client, server, folder=folder) in (ROOT, os.getuid())


def uid_of(client: Address, server: Address, *, folder: Path = Path("/proc/net")) -> int | None:
    """Return the owner of the client's socket, by the kernel's table of connections; None if it has none.

    Only an established connection counts: the kernel shows sockets that are closed already as root's.
    """
    for name in ("tcp", "tcp6"):
        try:
            lines = (folder / name).read_text("ascii").splitlines()[1:]
        except (OSError, ValueError):
            continue
        ends = _encoded(client, name), _encoded(server, name)
        for line in lines:
            columns = line.split()
            if (
                len(columns) > 9
                and (columns[1], columns[2]) == ends
                and columns[3] == ESTABLISHED
                and columns[9] != "0"
            ):
                return int(columns[7])
    return None


def _encoded(address: Address, table: str) -> str:
    """Write an address as the kernel's table does: words of 32 bits in the order of this machine."""
    ip = ip_address(address[0].split("%")[0])
    if table == "tcp6" and isinstance(ip, IPv4Address):
        ip = IPv6Address(f"::ffff:{ip}")
    elif table == "tcp" and isinstance(ip, IPv6Address):
        ip = ip.ipv4_mapped or IPv4Address(0)
    words = (ip.packed[at : at + 4] for at in range(0, len(ip.packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words) + f":{address[1]:04X}"
