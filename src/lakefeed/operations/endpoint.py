"""The driver's HTTP endpoint for ``lakefeed status`` and other programs of this user, and its port for probes.

A driver has few clients, so each connection has its own thread, answers one request, and has a deadline.
"""

from __future__ import annotations

import hmac
import json
import logging
import math
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from socketserver import ThreadingTCPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from lakefeed.config.models import PipelineConfig
from lakefeed.errors import LakefeedError, PortTaken, UserError
from lakefeed.feed.control import ACTIONS
from lakefeed.json_model import iso, rounded
from lakefeed.messages.redaction import remember
from lakefeed.messages.text import json_line
from lakefeed.monitor import drivers
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.metrics.exposition import MetricsText, metrics_text
from lakefeed.monitor.metrics.table import FeedReading, MetricSettings
from lakefeed.operations.live_status import identity_of

LOOPBACK = "127.0.0.1"
ON_BEHALF_OF = "X-Lakefeed-User"
"""The header in which ``lakefeed feed`` names its user to a driver on this machine."""
MOST_CONNECTIONS = 64
MOST_BODY = 64 * 1024
MOST_POINTS = 2000
ARRIVAL_SECONDS = 10.0
ANSWER_SECONDS = 30.0
_OPEN_TO_PROBES = ("/health/live", "/health/ready", "/health", "/metrics")
_SETTINGS = ("reason", "trigger", "max_records_per_batch")
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?")
_ACTOR = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,100}")
_log = logging.getLogger(__name__)

Document = dict[str, Any]


@dataclass(frozen=True)
class Served:
    """The addresses of a running driver's servers, and notes about them for the user.

    Attributes:
        url: the address of the endpoint, which requires ``token``; None if the driver has no endpoint.
    """

    url: str | None = None
    token: str | None = field(default=None, repr=False)
    probe_port: int | None = None
    notes: Sequence[str] = ()


@contextmanager
def reachable(
    config: PipelineConfig, monitor: FeedMonitor, *, port: int | None = 0, probe_port: int | None = None
) -> Iterator[Served]:
    """Serve a driver's endpoint within the ``with`` block, and write the file by which ``lakefeed status`` finds it.

    Args:
        port: the port of the endpoint; 0 for a free port, None for no endpoint.
        probe_port: the port on which all clients may probe and scrape; None for no such port.

    Raises:
        PortTaken: another process listens on one of the ports.
    """
    progress = monitor.snapshot()
    notes: list[str] = []
    feed = OwnFeed(monitor, settings=MetricSettings.of(config))
    with (
        serve(feed, port=port, probe_port=probe_port, notes=notes) as served,
        drivers.announced(
            progress.driver,
            feed=config.name,
            identity=identity_of(config),
            since=progress.started_at,
            url=served.url,
            token=served.token,
            say=notes.append,
        ) as note_fence,
    ):
        monitor.note_fence = note_fence
        yield served


@contextmanager
def serve(
    feed: OwnFeed, *, port: int | None = None, probe_port: int | None = None, notes: Sequence[str] = ()
) -> Iterator[Served]:
    """Serve a feed within the ``with`` block: an endpoint for programs of this user, and a port for probes."""
    with ExitStack() as stack:
        url = token = None
        if port is not None:
            token = secrets.token_urlsafe(32)
            remember([token])
            url = f"http://{LOOPBACK}:{stack.enter_context(_listening(_Server(LOOPBACK, port, feed, token)))}"
        if probe_port is not None:
            everywhere = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104
            probe_port = stack.enter_context(_listening(_Server(everywhere, probe_port, feed, None)))
        yield Served(url, token, probe_port, notes)


class Refused(Exception):
    """The HTTP status and the error of the answer to a request that is refused.

    ``retry_after`` is the number of seconds after which the client may repeat the request; None if it must not.
    """

    def __init__(self, status: int, error: str, hint: str | None = None, *, retry_after: int | None = None) -> None:
        super().__init__(error)
        self.retry_after = retry_after
        self.status = status
        self.error = error
        self.hint = hint

    def as_dict(self) -> Document:
        return {"error": self.error, "hint": self.hint}

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"retry-after": str(self.retry_after)}


class OwnFeed:
    """The documents about the feed that this process runs; ``settings`` are the settings of its metrics and health."""

    def __init__(self, monitor: FeedMonitor, *, settings: MetricSettings | None = None) -> None:
        self._monitor = monitor
        self._settings = settings or MetricSettings()

    @property
    def name(self) -> str:
        return self._monitor.feed

    def rows(self) -> Sequence[Document]:
        return [self.row()]

    def find(self, name: str) -> OwnFeed | None:
        return self if name == self.name else None

    def row(self) -> Document:
        """Return the feed's entry in the list of all feeds."""
        progress = self._monitor.snapshot()
        batch = progress.last_batch
        return {
            "feed": progress.feed,
            "sink": progress.sink,
            "state": progress.state,
            "hangs": progress.hangs,
            "reachable": True,
            "lag": progress.lag,
            "lag_seconds": rounded(progress.lag_seconds),
            "rate": rounded(progress.rate),
            "processing_rate": rounded(batch.processing_rate) if batch else None,
            "last_commit_at": iso(progress.last_commit_at),
            "last_error": progress.last_error.as_dict() if progress.last_error else None,
            "paused": progress.paused.as_dict() if progress.paused else None,
            "driver": progress.driver.as_dict(),
        }

    def progress(self) -> Document:
        return self._monitor.snapshot().as_dict()

    def history(self, *, since: float = 0.0, most: int = 500) -> Document:
        return self._monitor.history_since(since, most=most).as_dict()

    def events(self, *, after: int) -> Document:
        return {"events": [event.as_dict() for event in self._monitor.events.after(after)]}

    def detail(self, what: str) -> Document:
        """Return the document that a plug-in provides about the run under the name ``what``."""
        read = self._monitor.documents.get(what)
        if read is None:
            raise Refused(501, f"no plug-in of this feed provides the page '{what}'")
        try:
            return read()
        except LakefeedError as error:
            raise Refused(503, error.what, error.hint) from None

    def act(self, request: Mapping[str, Any], *, by: str) -> Document:
        """Request an action; return the event that logs the request. Raise Refused if the feed refuses the action."""
        given = {name: request[name] for name in _SETTINGS if request.get(name) is not None}
        try:
            return self._monitor.control.request(request["action"], by=by, **given).as_dict()
        except UserError as error:
            raise Refused(409, error.what, error.hint) from None

    def metrics(self, *, accept: str) -> MetricsText:
        return metrics_text([FeedReading.of(self._monitor, self._settings)], accept=accept)

    def health(self) -> tuple[bool, Document]:
        health = FeedReading.of(self._monitor, self._settings).health
        return health.is_well, health.as_dict()

    def note(self, message: str, **details: Any) -> None:
        self._monitor.events.add("action", message, **details)


def host_name(given: Sequence[str]) -> str | None:
    """Return the host without its port from a request's ``Host`` headers; None unless there is exactly one."""
    match = _HOST.fullmatch(given[0].lower()) if len(given) == 1 else None
    return None if match is None else match["name"].strip("[]").rstrip(".")


def is_address(text: str) -> bool:
    """Return whether a host is a numeric IP address: an attacker's DNS server could resolve a name to this machine."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def history_range(query: Mapping[str, str]) -> dict[str, Any]:
    """Return the start time and the number of points that a request for history asks for."""
    most = min(MOST_POINTS, max(1, int(_number(query, "most", 500))))
    return {"since": _number(query, "since", 0.0), "most": most}


def event_number(query: Mapping[str, str]) -> int:
    """Return the parameter ``after`` of a request: the number of the last event that the client has."""
    return int(min(2.0**53, max(0.0, _number(query, "after", 0))))


def _number(query: Mapping[str, str], name: str, default: float) -> float:
    try:
        number = float(query.get(name, default))
    except ValueError:
        return default
    return number if math.isfinite(number) else default


def json_object(body: bytes) -> Document:
    """Return the JSON object in a request's body; raise Refused if the body is anything else."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not JSON") from None
    if not isinstance(document, dict):
        raise Refused(400, "the body must be a JSON object")
    return document


def require_action(document: Document) -> None:
    if document.get("action") not in ACTIONS:
        raise Refused(400, "there is no such action", f"choose one of {', '.join(ACTIONS)}")


@contextmanager
def _listening(server: _Server) -> Iterator[int]:
    thread = threading.Thread(target=lambda: server.serve_forever(0.2), name="lakefeed-endpoint", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingTCPServer):
    """Answers requests with its token. A server without a token answers all clients, but only probes and scrapes."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False  # A run that ends does not wait for answers to requests.
    request_queue_size = 128

    def __init__(self, host: str, port: int, feed: OwnFeed, token: str | None) -> None:
        self.feed = feed
        self.token = token
        self.hosts = {LOOPBACK, "localhost", "::1", *([] if token else [socket.gethostname().lower()])}
        self._lock = threading.Lock()
        self._deadlines: dict[Any, float] = {}
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Request)
        except OSError as error:
            what = f"the server cannot listen: {error.strerror}"
            hint = "choose another port, or 0 for a free port"
            raise PortTaken(what, where=f"{host}:{port}", hint=hint) from None

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Accept a connection; if there are too many, end the oldest, so that silent clients do not block probes."""
        with self._lock:
            if len(self._deadlines) >= MOST_CONNECTIONS:
                _end(self._deadlines, next(iter(self._deadlines)))
            self._deadlines[request] = time.monotonic() + ARRIVAL_SECONDS
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections whose deadline has passed; called several times a second."""
        now = time.monotonic()
        with self._lock:
            for request in [request for request, until in self._deadlines.items() if until <= now]:
                _end(self._deadlines, request)

    def has_arrived(self, request: Any) -> None:
        with self._lock:
            if request in self._deadlines:
                self._deadlines[request] = time.monotonic() + ANSWER_SECONDS

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log that a client has disconnected at the level debug, and not on stderr, which has the feed's log."""
        _log.debug("a client of the endpoint has disconnected", exc_info=True)


def _end(deadlines: dict[Any, float], request: socket.socket) -> None:
    """Shut down a connection while a thread reads from it; this thread then closes the connection."""
    del deadlines[request]
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Request(BaseHTTPRequestHandler):
    """One request; the connection ends after the answer."""

    server: _Server

    def parse_request(self) -> bool:
        """Route all HTTP methods to ``do_ANY``, so that it checks the token for every method."""
        is_whole = super().parse_request()
        self.method, self.command = self.command, "ANY"
        self.close_connection = True
        return is_whole

    def do_ANY(self) -> None:
        self.server.has_arrived(self.request)
        try:
            status, document = self._answer()
        except Refused as refused:
            self._send(refused.status, json_line(refused.as_dict()).encode(), **refused.headers)
        except Exception as error:
            # The error's text may contain values of records, so only its class is logged.
            _log.warning("a request to the endpoint has failed: %s", type(error).__name__)
            self._send(500, json_line({"error": "the endpoint has failed: see the driver's log"}).encode())
        else:
            if isinstance(document, MetricsText):
                self._send(status, document.body.encode(), **{"content-type": document.content_type})
            else:
                self._send(status, json_line(document).encode())

    def _answer(self) -> tuple[int, Document | MetricsText]:
        name = host_name(self.headers.get_all("host", []))
        token = self.server.token
        if name is None or not (name in self.server.hosts or (token is None and is_address(name))):
            raise Refused(421, "this server does not serve that host")
        parts = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        if not (token is None and self.method == "GET" and parts.path in _OPEN_TO_PROBES):
            given = self.headers.get("authorization", "").encode("utf-8", "replace")
            if token is None or not hmac.compare_digest(given, f"Bearer {token}".encode()):
                return 401, {"error": "a login is required"}
        feed = self.server.feed
        match self.method, [unquote(part) for part in parts.path.split("/")[1:]]:
            case "GET", ["metrics"]:
                return 200, feed.metrics(accept=self.headers.get("accept", ""))
            case "GET", ["health"]:
                is_well, document = feed.health()
                return (200 if is_well else 503), document
            case "GET", ["health", "live" | "ready" as key]:
                is_so = bool(feed.health()[1].get(key))
                return (200 if is_so else 503), {key: is_so}
            case "GET", ["api", "feeds"]:
                return 200, {"feeds": feed.rows()}
            case "GET", ["progress"] | ["api", "feeds", feed.name, "progress"]:
                return 200, feed.progress()
            case "GET", ["history"] | ["api", "feeds", feed.name, "history"]:
                return 200, feed.history(**history_range(query))
            case "GET", ["api", "feeds", feed.name, "events"]:
                return 200, feed.events(after=event_number(query))
            case "POST", ["api", "feeds", feed.name, "actions"]:
                return 202, {"event": feed.act(self._action(), by=self._actor())}
            case "GET", ["api", "feeds", feed.name, what]:
                return 200, feed.detail(what)
            case "GET", _:
                raise Refused(404, "there is no such page")
        raise Refused(405, "only GET for pages and POST for actions are allowed")

    def _action(self) -> Document:
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MOST_BODY:
            raise Refused(413, f"a request needs the header Content-Length, with at most {MOST_BODY:,} bytes")
        document = json_object(self.rfile.read(int(length)))
        require_action(document)
        return document

    def _actor(self) -> str:
        given = unquote(self.headers.get(ON_BEHALF_OF, ""))
        return given if _ACTOR.fullmatch(given) else "local user"

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response_only(status)
        sent = {"content-type": "application/json; charset=utf-8", "cache-control": "no-store", **headers}
        for name, value in {**sent, "x-content-type-options": "nosniff", "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self.request_version = "HTTP/1.0"
        self._send(400, json_line({"error": "this is not an HTTP request"}).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: the base class would write to stderr, which has the feed's log."""
