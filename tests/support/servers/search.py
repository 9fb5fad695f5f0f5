"""Run a search server from its Maven artifacts, and a gate in front of it that requires a login and fails on demand."""

import base64
import http.client
import json
import secrets
import shutil
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from lakefeed.clients.spark import jars
from lakefeed.clients.spark.driver_jvm import require_java
from lakefeed_local.part import LOOPBACK, choose_free
from tests.support.servers.gate import JSON, Handler, ask, serving
from tests.support.servers.java import compile_java, java_command, newer_java
from tests.support.servers.process import Restartable, restartable


@dataclass(frozen=True, kw_only=True)
class SearchServer:
    """A running server.

    Attributes:
        port: the port of its REST API on the loopback interface.
        process: the server's process, which tests may kill and start again.
    """

    port: int
    process: Restartable | None = None

    @property
    def url(self) -> str:
        """The server's address for clients."""
        return f"http://{LOOPBACK}:{self.port}"

    def ask(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> Any:
        """Send a request; return the answer's JSON. Raise an AssertionError if the answer is an error."""
        body = None if document is None else json.dumps(document).encode()
        status, answer = _sent(self.port, method, path, JSON, body)
        assert status < 300, (method, path, status, answer)
        return json.loads(answer or b"null")

    def documents(self, index: str) -> dict[str, dict[str, Any]]:
        """Refresh a small index, and return its documents by id."""
        self.ask("POST", f"/{index}/_refresh")
        found = self.ask("GET", f"/{index}/_search?size=10000")["hits"]
        assert found["total"]["relation"] == "eq"
        return {each["_id"]: each["_source"] for each in found["hits"]}

    def read_all(self, index: str) -> Iterator[dict[str, Any]]:
        """Yield all documents of a large index, with their ``_id``."""
        self.ask("POST", f"/{index}/_refresh")
        found = self.ask("POST", f"/{index}/_search?scroll=5m", {"size": 10_000, "sort": ["_doc"]})
        while hits := found["hits"]["hits"]:
            yield from ({"_id": each["_id"], **each["_source"]} for each in hits)
            found = self.ask("POST", "/_search/scroll", {"scroll": "5m", "scroll_id": found["_scroll_id"]})

    def answers(self) -> bool:
        """Check that the server is up and has loaded its indexes."""
        try:
            status, _ = _sent(self.port, "GET", "/_cluster/health?wait_for_status=yellow&timeout=1s", {}, None)
        except (OSError, http.client.HTTPException):
            return False
        return status == 200


@dataclass(frozen=True, kw_only=True)
class Program:
    """The parts of a node besides its jars, which are locked in groups such as ``test-opensearch-2``.

    Attributes:
        module: the class of the HTTP module.
        java: a function that returns a suitable Java.
    """

    module: str
    java: Callable[[], Path] = newer_java


PROGRAMS = {
    "opensearch-2": Program(module="org.opensearch.transport.Netty4Plugin", java=require_java),
    "opensearch-3": Program(module="org.opensearch.transport.Netty4ModulePlugin"),
    "elasticsearch-9": Program(module="org.elasticsearch.transport.netty4.Netty4Plugin"),
}
EACH_SEARCH_SERVER = tuple(
    pytest.param(kind, marks=() if kind == "opensearch-2" else pytest.mark.slow) for kind in PROGRAMS
)
"""Parameters for tests of the sink; newer servers are slow, since they need downloads and another Java."""


@contextmanager
def search_server(kind: str) -> Iterator[SearchServer]:
    """Run a server until the block ends, in a separate folder."""
    program = PROGRAMS[kind]
    with TemporaryDirectory(prefix=f"lakefeed-{kind}-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        path = [compile_java(Path(__file__).parent / "SearchNode.java", folder / "classes")]
        path += _elasticsearch_jars(folder) if kind.startswith("elasticsearch") else jars.fetch([f"test-{kind}"])
        port = choose_free(avoid=())
        server = SearchServer(port=port)
        node = ("SearchNode", program.module, folder, port, choose_free(avoid=(port,)))
        command = java_command(path, *node, memory="512m", java=program.java())
        with restartable(command, log=folder / "log", ready=server.answers) as process:
            yield replace(server, process=process)


def _elasticsearch_jars(folder: Path) -> list[Path]:
    """Copy the HTTP module to the folder from which the server loads it; return the server's other jars."""
    group = "test-elasticsearch-9"
    module = folder / "modules" / "transport-netty4"
    module.mkdir(parents=True)
    own = []
    for jar in jars.fetch([group]):
        # The server refuses a module whose classes are also in its class path.
        if jar.name.startswith(("transport-netty4", "netty-", "elasticsearch-ssl-config")):
            shutil.copy(jar, module)
        else:
            own.append(jar)
    [version] = [
        artifact.coordinate.rpartition(":")[2]
        for artifact in jars.read_lock().of([group])
        if artifact.coordinate.startswith("org.elasticsearch:elasticsearch:")
    ]
    described = {
        "name": module.name,
        "description": "HTTP",
        "classname": PROGRAMS["elasticsearch-9"].module,
        "version": version,
        "elasticsearch.version": version,
        "java.version": "21",
    }
    (module / "plugin-descriptor.properties").write_text(
        "".join(f"{key}={value}\n" for key, value in described.items())
    )
    return own


Answer = tuple[int, bytes]
"""Status and body."""


@dataclass
class Gate:
    """A proxy in front of the server that inspects each request.

    Attributes:
        port: the gate's port.
        username: the user who may log in.
        password: that user's password.
        before: a function of method, path and body; its answer, unless None, replaces the request to the server.
        after: a function that replaces the server's answer; None cuts the connection.
        seen: method and path of all requests so far.
        certificate: the certificate of the https port; None for http.
    """

    port: int = 0
    username: str = "feeder"
    password: str = field(default_factory=lambda: secrets.token_hex(8), repr=False)
    before: Callable[[str, str, bytes], Answer | None] = lambda method, path, body: None
    after: Callable[[str, str, Answer], Answer | None] = lambda method, path, answer: answer
    seen: list[tuple[str, str]] = field(default_factory=list)
    certificate: Path | None = None

    @property
    def url(self) -> str:
        """The gate's address for clients."""
        return f"{'http' if self.certificate is None else 'https'}://{LOOPBACK}:{self.port}"

    @property
    def login(self) -> str:
        """The value of the header ``Authorization`` that the gate accepts."""
        return f"Basic {base64.b64encode(f'{self.username}:{self.password}'.encode()).decode()}"

    def bulks(self) -> int:
        """Return the number of bulk requests so far."""
        return sum("/_bulk" in path for _, path in self.seen)


@contextmanager
def gate(server: SearchServer, *, certificate: Path | None = None, clients: Path | None = None) -> Iterator[Gate]:
    """Run a gate in front of a server until the block ends.

    Args:
        server: the server behind the gate.
        certificate: serve https with this certificate, whose key is in the same file.
        clients: accept only clients with a certificate of this authority.
    """
    made = Gate(certificate=certificate)
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        if clients is not None:
            context.load_verify_locations(clients)
            context.verify_mode = ssl.CERT_REQUIRED
    with serving(type("Handler", (_Handler,), {"gate": made, "behind": server}), context) as made.port:
        yield made


class _Handler(Handler):
    gate: Gate
    behind: SearchServer

    def answer(self, body: bytes) -> None:
        self.gate.seen.append((self.command, self.path))
        answer: Answer | None = (401, b'{"error":"who are you?"}')
        if self.headers.get("authorization") == self.gate.login:
            answer = self.gate.before(self.command, self.path, body)
            if answer is None:
                headers = {"content-type": self.headers.get("content-type") or "application/json"}
                try:
                    answer = _sent(self.behind.port, self.command, self.path, headers, body)
                    if (self.command, self.path, answer[0]) == ("GET", "/", 405):
                        answer = _root_page(self.behind.port)
                    answer = self.gate.after(self.command, self.path, answer)
                except (OSError, http.client.HTTPException):
                    # The server is down, so the gate drops the connection, too.
                    answer = None
        if answer is None:
            self.close_connection = True
            return
        self.send(*answer)


def _root_page(port: int) -> Answer:
    """Return the page at ``/``; a node cannot serve it, because Maven Central lacks the module of the page."""
    status, text = _sent(port, "GET", "/_nodes/_local?filter_path=nodes.*.version", {}, None)
    assert status == 200, (status, text)
    [node] = json.loads(text)["nodes"].values()
    return 200, json.dumps({"version": {"number": node["version"]}}).encode()


def _sent(port: int, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
    status, _, answer = ask(f"{LOOPBACK}:{port}", method, path, headers, body)
    return status, answer
