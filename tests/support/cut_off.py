"""Disconnect a process from the network and restore it; meanwhile connections stay open and receive nothing.

The process runs in its own network namespace, in which relays listen at the servers' addresses. The relays reach the
servers through Unix sockets and a thread of the test, which can stop forwarding bytes. Bytes sent before the cut may
arrive after the cut ends, so a commit may arrive late. Needs Linux and root.

As a program, in the new namespace: ``unshare --net python cut_off.py FOLDER PORTS COMMAND …``.
"""

import asyncio
import fcntl
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1
LOOPBACK = "127.0.0.1"


class Link:
    """The link between a process and its servers.

    Args:
        folder: the folder of the sockets.
        ports: the servers' ports on loopback.
    """

    def __init__(self, folder: Path, ports: Sequence[int]) -> None:
        self.folder, self.ports = folder, ports
        self._loop = asyncio.new_event_loop()
        self._passing = asyncio.Event()
        self._passing.set()

    def command(self, command: Sequence[str]) -> list[str]:
        """Return a command that runs `command` with this link as its network."""
        ports = ",".join(map(str, self.ports))
        return ["unshare", "--net", sys.executable, __file__, str(self.folder), ports, *command]

    def cut(self) -> None:
        """Stop forwarding bytes."""
        self._loop.call_soon_threadsafe(self._passing.clear)

    def restore(self) -> None:
        """Forward the bytes that have waited, and all later bytes."""
        self._loop.call_soon_threadsafe(self._passing.set)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Forward bytes until the block ends."""
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        servers = [asyncio.run_coroutine_threadsafe(self._serve(port), self._loop).result(10) for port in self.ports]
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(_end(servers), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(10)
            self._loop.close()

    async def _serve(self, port: int) -> asyncio.Server:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _relay((reader, writer), await asyncio.open_connection(LOOPBACK, port), self._passing)

        return await asyncio.start_unix_server(connected, str(self.folder / f"{port}.sock"))


async def _end(servers: Sequence[asyncio.Server]) -> None:
    """Close the servers and cancel the remaining relays."""
    for server in servers:
        server.close()
    relays = asyncio.all_tasks() - {asyncio.current_task()}
    for relay in relays:
        relay.cancel()
    await asyncio.gather(*relays, return_exceptions=True)


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _relay(here: Ends, there: Ends, passing: asyncio.Event) -> None:
    await asyncio.gather(_pump(here[0], there[1], passing), _pump(there[0], here[1], passing))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: asyncio.Event) -> None:
    try:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await passing.wait()
                writer.write(data)
                await writer.drain()
        await passing.wait()
    finally:
        writer.close()


async def _listen(folder: str, ports: list[int], command: list[str]) -> None:
    """Listen at the servers' usual addresses, and run the command."""
    always = asyncio.Event()
    always.set()
    for port in ports:

        async def connected(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str = f"{folder}/{port}.sock"
        ) -> None:
            await _relay((reader, writer), await asyncio.open_unix_connection(path), always)

        await asyncio.start_server(connected, LOOPBACK, port)
    status = await (await asyncio.create_subprocess_exec(*command)).wait()
    os._exit(status)  # Exit immediately, because cancelled relays would write stack traces into the command's output.


def _raise_loopback() -> None:
    """Turn the namespace's loopback interface on."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


if __name__ == "__main__":
    _raise_loopback()
    asyncio.run(_listen(sys.argv[1], [int(port) for port in sys.argv[2].split(",")], sys.argv[3:]))
