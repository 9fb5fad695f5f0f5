"""Run the dashboard's application in its own thread, with limits on clients.

Too many connections would take the file descriptors that the feed needs to commit. uvicorn handles HTTP, but does not
limit connections. So this module accepts connections before uvicorn gets them. It limits the number of connections, in
total and per address, before the TLS handshake, and the time in which a request must arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from lakefeed.errors import ConfigError, PortTaken, Unreachable
from lakefeed_dashboard.access import Audit, dashboard_access, network_of
from lakefeed_dashboard.api import DashboardApp
from lakefeed_dashboard.settings import Dashboard, is_loopback
from lakefeed_dashboard.stream import Hub
from lakefeed_dashboard.workers import Feeds, Workers

_log = logging.getLogger(__name__)

MOST_CONNECTIONS = 300
MOST_OF_AN_ADDRESS = 64
ARRIVAL_SECONDS = 10.0
HANDSHAKE_SECONDS = 5.0
IDLE_SECONDS = 15
WRITE_SECONDS = 20.0
START_SECONDS = 20.0
STOP_SECONDS = 1
MOST_HEADER_BYTES = 16 * 1024


@dataclass(frozen=True)
class Listener:
    """An address to listen on, and the application to serve there."""

    socket: socket.socket
    app: ASGIApp
    tls: ssl.SSLContext | None = None
    # On loopback or behind a proxy, many clients have the same address, so the limit per address does not apply.
    shares_addresses: bool = True


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raise PortTaken if the port is taken, Unreachable if the host is unknown."""
    name = f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        what, hint = (
            f"the dashboard's host is unknown: {error.strerror}",
            "set dashboard.host to an address of this machine",
        )
        raise Unreachable(what, where=name, hint=hint) from None
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        what = f"the server cannot listen: {error.strerror}"
        raise PortTaken(what, where=name, hint="choose another port, or 0 for a free one") from None
    listening.setblocking(False)
    return listening


@contextmanager
def serving(open_listener: Callable[[], Listener], *, at_end: Callable[[], object]) -> Iterator[None]:
    """Serve while the block runs.

    Args:
        open_listener: called in the server's event loop.
        at_end: called in the event loop before the connections are closed, to end streams.
    """
    thread = _ServerThread(open_listener, at_end)
    thread.start()
    try:
        thread.is_up.wait(START_SECONDS)
        if thread.failure is not None:
            raise thread.failure
        yield
    finally:
        thread.stop()


class _ServerThread(threading.Thread):
    def __init__(self, open_listener: Callable[[], Listener], at_end: Callable[[], object]) -> None:
        super().__init__(name="lakefeed-server", daemon=True)
        self.is_up = threading.Event()
        self.failure: BaseException | None = None
        self._open_listener = open_listener
        self._at_end = at_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ends = asyncio.Event()

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self.failure = error
            if self.is_up.is_set():
                _log.error("the dashboard's server has ended: %s; the feed continues", type(error).__name__)
                _log.debug("details", exc_info=True)
        finally:
            self.is_up.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Without this handler, asyncio would write each client that disconnects to stderr, which is the feed's log.
        self._loop.set_exception_handler(lambda loop, context: None)
        listener = self._open_listener()
        config = uvicorn.Config(
            listener.app,
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=IDLE_SECONDS,
            h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        )
        config.load()
        state = ServerState()
        with _Accepting(listener, lambda: _Protocol(config=config, server_state=state, app_state={})) as accepting:
            self.is_up.set()
            ends = self._loop.create_task(self._ends.wait())
            # If accepting fails, the server ends, so that clients are refused instead of waiting.
            await asyncio.wait([ends, accepting.task], return_when=asyncio.FIRST_COMPLETED)
            if accepting.task.done():
                accepting.task.result()
            self._at_end()
        for connection in list(state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                while state.connections or state.tasks:
                    await asyncio.sleep(0.01)
        for connection in list(state.connections):
            if isinstance(connection, _Protocol):
                connection.abort()
        for task in list(state.tasks):
            task.cancel()

    def stop(self) -> None:
        if self._loop is not None and self.is_alive():
            with contextlib.suppress(RuntimeError):  # The event loop has already ended.
                self._loop.call_soon_threadsafe(self._ends.set)
        self.join(STOP_SECONDS + 5.0)


class _Accepting:
    """Accepts a limited number of connections; at the limit, a new connection replaces the oldest idle connection."""

    def __init__(self, listener: Listener, protocol: Callable[[], _Protocol]) -> None:
        self._listener = listener
        self._protocol = protocol
        self._open: Counter[str] = Counter()
        self._connections: dict[_Protocol, asyncio.Task[None]] = {}
        """The open connections, oldest first, and the tasks of their TLS handshakes."""
        self.task = asyncio.get_running_loop().create_task(self._accept())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.task.cancel()
        for beginning in self._connections.values():
            beginning.cancel()
        self._listener.socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._listener.socket)
            except OSError:  # For example, the process has no free file descriptors.
                await asyncio.sleep(0.2)
                continue
            who = network_of(str(address[0]))
            is_full = self._open.total() >= MOST_CONNECTIONS and not self._make_room()
            if is_full or (not self._listener.shares_addresses and self._open[who] >= MOST_OF_AN_ADDRESS):
                connection.close()
                continue
            self._open[who] += 1
            protocol = self._protocol()
            protocol.at_end = partial(self._leave, protocol, who)
            self._connections[protocol] = loop.create_task(self._begin(connection, protocol))

    def _make_room(self) -> bool:
        """Close the oldest connection without a request; return False if every connection has a request."""
        for protocol, handshake in self._connections.items():
            if protocol.is_idle:
                del self._connections[protocol]
                if protocol.has_begun:
                    protocol.abort()
                else:
                    handshake.cancel()
                return True
        return False

    async def _begin(self, connection: socket.socket, protocol: _Protocol) -> None:
        tls: dict[str, Any] = {}
        if self._listener.tls is not None:
            tls = {"ssl": self._listener.tls, "ssl_handshake_timeout": HANDSHAKE_SECONDS}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, connection, **tls)
        except (OSError, ssl.SSLError, asyncio.CancelledError):
            connection.close()
            if not protocol.has_begun:
                protocol.at_end()

    def _leave(self, protocol: _Protocol, who: str) -> None:
        self._connections.pop(protocol, None)
        self._open[who] -= 1
        if self._open[who] <= 0:
            del self._open[who]


class _Protocol(H11Protocol):
    """uvicorn's protocol with two time limits: for a request to arrive, and for the client to read an answer."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        # All requests of the connection share this dictionary, in which the guard stores whether this process's user
        # owns the client's socket.
        self.app_state = {"connection": {"abort": self.abort}}
        self.at_end: Callable[[], None] = lambda: None
        self.has_begun = False
        self._arrival: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        return not self.has_begun or self._arrival is not None or self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.has_begun = True
        super().connection_made(transport)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._arrival, self._writing):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        self.at_end()

    def data_received(self, data: bytes) -> None:
        self._wait_for_request()
        super().data_received(data)
        # After an answer, `cycle` is still the answered request, with its complete response.
        is_whole = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if is_whole and self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(WRITE_SECONDS, self.abort)

    def resume_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        super().resume_writing()

    def _wait_for_request(self) -> None:
        if self._arrival is None:
            self._arrival = self.loop.call_later(ARRIVAL_SECONDS, self.abort)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


@contextmanager
def serve(feeds: Feeds, dashboard: Dashboard) -> Iterator[str]:
    """Serve feeds to browsers while the block runs; yield the address for browsers.

    Raises:
        PortTaken: another process listens on the port.
        ConfigError: the certificate or its key cannot be read.
    """
    workers = Workers()
    hubs: list[Hub] = []
    with ExitStack() as stack:
        stack.callback(workers.close)
        tls = tls_context(dashboard)
        page = stack.enter_context(listen(dashboard.host, dashboard.port))
        port = page.getsockname()[1]
        access = dashboard_access(dashboard, port=port)
        stack.callback(access.close)

        def open_listener() -> Listener:
            hub = Hub(feeds, workers)
            hubs.append(hub)
            app = DashboardApp(feeds, access=access, hub=hub, workers=workers, audit=Audit(feeds.note)).app()
            shares = is_loopback(dashboard.host) or dashboard.behind_proxy
            return Listener(page, app, tls=tls, shares_addresses=shares)

        def end_streams() -> None:
            for hub in hubs:
                hub.close()

        stack.enter_context(serving(open_listener, at_end=end_streams))
        host = dashboard.host.strip("[]")
        own = f"{'https' if dashboard.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
        yield dashboard.public_url or own


def tls_context(dashboard: Dashboard) -> ssl.SSLContext | None:
    """Return the server's TLS context; None without TLS."""
    if dashboard.tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    where = f"dashboard.tls: {dashboard.tls.certificate}, {dashboard.tls.key}"
    try:
        # Without this callback, OpenSSL would ask for a passphrase at the terminal.
        context.load_cert_chain(dashboard.tls.certificate, dashboard.tls.key, password=lambda: "")
    except ssl.SSLError as error:
        what = f"the certificate and its key cannot be used: {error.reason or 'not PEM'}"
        hint = "both files must be in PEM, and the key must belong to the certificate and have no passphrase"
        raise ConfigError(what, where=where, hint=hint) from None
    except OSError as error:
        what = f"the certificate or its key cannot be read: {error.strerror}"
        raise ConfigError(what, where=where, hint="check both paths, and that this user may read the files") from None
    return context
