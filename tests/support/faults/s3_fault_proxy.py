"""A proxy of an S3 store that forwards requests, but breaks those that a test chooses.

The proxy can also kill the process that sent a request, before the store receives the request or after the store has
done it, so that a driver dies exactly between two steps. Signatures stay valid because the proxy passes on the client's
Host header.
"""

import re
import socket
import struct
import threading
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from lakefeed_local.part import LOOPBACK
from tests.support.servers.gate import Handler, serving

Kind = Literal[
    "503", "500", "SlowDown", "reset", "lost reply", "ignored condition", "501", "kill before", "kill after", "late"
]
"""``late``: the request reaches the store after ``meanwhile`` has returned."""
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as it arrives at the proxy."""

    method: str
    path: str
    query: dict[str, str]
    conditional: bool

    @property
    def operation(self) -> str:
        """S3's name of the operation; only operations that Spark, S3A and Iceberg use are known."""
        if self.path.strip("/").count("/") < 1:
            of_bucket = {
                "versions": "ListObjectVersions",
                "versioning": "GetBucketVersioning",
                "uploads": "ListMultipartUploads",
                "delete": "DeleteObjects",
                "list-type": "ListObjectsV2",
            }
            return next((name for key, name in of_bucket.items() if key in self.query), f"{self.method} bucket")
        of_upload = {"PUT": "UploadPart", "POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload"}
        of_object = {"PUT": "PutObject", "POST": "CreateMultipartUpload", "DELETE": "DeleteObject"}
        of_object |= {"GET": "GetObject", "HEAD": "HeadObject"}
        return (of_upload if "uploadId" in self.query else of_object)[self.method]


Matcher = Callable[[Request], bool]


def on(operation: str) -> Matcher:
    """Match the requests of one operation."""
    return lambda request: request.operation == operation


def put(pattern: str) -> Matcher:
    """Match the PUT of an object whose path contains a match of this regular expression."""
    expected = re.compile(pattern)
    return lambda request: request.operation == "PutObject" and expected.search(request.path) is not None


@dataclass(kw_only=True)
class Fault:
    """The requests to break, how often, and the requests that the store must have answered before, in order."""

    kind: Kind
    matches: Matcher
    times: int
    after: list[Matcher] = field(default_factory=list)
    done: int = 0


@dataclass
class FaultProxy:
    """A running proxy; tests may change its faults at any time."""

    endpoint: str
    faults: list[Fault] = field(default_factory=list)
    seen: list[Request] = field(default_factory=list)
    victim: Callable[[], None] = lambda: None
    """Kills the sender of a request; returns when the sender is dead."""

    meanwhile: Callable[[], None] = lambda: None
    """Called while a request with the fault ``late`` waits."""

    cut: bool = False
    """True after the sender was killed; its requests that are still in transit are then not forwarded."""

    _lock: threading.Lock = field(default_factory=threading.Lock)

    def spoil(self, kind: Kind, matches: Matcher, *, times: int = 1, after: Sequence[Matcher] = ()) -> Fault:
        """Break the next requests that match; return the new fault."""
        fault = Fault(kind=kind, matches=matches, times=times, after=list(after))
        with self._lock:
            self.faults.append(fault)
        return fault

    def heal(self) -> None:
        """Remove all faults."""
        with self._lock:
            self.faults.clear()
            self.cut = False

    def kill(self) -> None:
        """Kill the sender; from now on its requests are not forwarded."""
        self.cut = True
        self.victim()

    def has_answered(self, request: Request) -> None:
        """Register that the store has answered a request, because a fault may wait for this answer."""
        with self._lock:
            for fault in self.faults:
                if fault.after and fault.after[0](request):
                    fault.after.pop(0)

    def counted(self) -> dict[str, int]:
        """Return the number of requests by operation, including those that were broken."""
        with self._lock:
            return dict(Counter(request.operation for request in self.seen))

    def choose(self, request: Request) -> Kind | None:
        """Return the fault for a request, if one is due."""
        with self._lock:
            self.seen.append(request)
            if self.cut:
                return "reset"
            for fault in self.faults:
                if not fault.after and fault.done < fault.times and fault.matches(request):
                    fault.done += 1
                    return fault.kind
        return None


@contextmanager
def fault_proxy(store: str) -> Iterator[FaultProxy]:
    """Run a proxy of the store at that URL."""
    target = urllib.parse.urlsplit(store).netloc

    class Proxy(Handler):
        def answer(self, body: bytes) -> None:
            parts = urllib.parse.urlsplit(self.path)
            request = Request(
                method=self.command,
                path=urllib.parse.unquote(parts.path),
                query=dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True)),
                conditional="If-None-Match" in self.headers,
            )
            kind = proxy.choose(request)
            if kind in ("503", "501", "500"):
                self.send(int(kind), b"", {})
            elif kind == "SlowDown":
                self.send(503, SLOW_DOWN, {"content-type": "application/xml"})
            elif kind == "reset":
                self._reset()
            elif kind == "kill before":
                proxy.kill()
                self._reset()
            else:
                if kind == "late":
                    proxy.meanwhile()
                status, headers, answer = self.forward(target, body)
                if kind == "kill after":
                    proxy.kill()
                elif status < 300:
                    proxy.has_answered(request)
                if kind in ("lost reply", "kill after"):
                    self._reset()
                elif kind == "ignored condition" and status in (409, 412):
                    self.send(200, b"", {"ETag": '"0"'})
                else:
                    self.send(status, answer, headers)

        def _reset(self) -> None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            self.rfile = self.wfile = open("/dev/null", "r+b")  # noqa: SIM115 (closed by the base class)

    proxy = FaultProxy("")
    with serving(Proxy) as port:
        proxy.endpoint = f"http://{LOOPBACK}:{port}"
        yield proxy
