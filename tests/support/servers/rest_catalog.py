"""Run an Iceberg REST catalog: Iceberg's own server code, behind a gate that requires OAuth2 and can fail on demand.

The gate runs in this process: it exchanges client credentials for tokens that expire, refuses clients without a token,
returns the store's keys to clients that request vended credentials, and breaks answers as a test demands.
"""

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

from lakefeed.clients.spark import jars
from lakefeed_local.part import LOOPBACK, choose_free
from lakefeed_local.stack import Endpoints
from tests.support.servers import deviations
from tests.support.servers.gate import Handler, serving
from tests.support.servers.java import java_command
from tests.support.servers.process import answers, running

Fault: TypeAlias = str
"""``applied``, ``not-applied``, or ``late`` (applied when a test allows it), plus the answer to a change of a table.

The answer is a status such as ``-401``, or ``-html-502`` for a page of HTML; or ``-hung-up`` if there is no answer,
``-cut`` if only half an answer is sent, ``-silent`` if the answer comes after the client's timeout. Without a suffix
the answer is the normal one.
"""
SILENCE_SECONDS = 17
NOT_MODIFIED = 304
"""An answer with this status has no body: the client would read a body as the next answer of the connection."""

TOKENS = "/v1/oauth/tokens"


class Held:
    """Delays the first change whose body contains certain bytes, before the server receives it."""

    def __init__(self) -> None:
        self._awaited = b""
        self.arrived = threading.Event()
        self._released = threading.Event()

    def hold(self, awaited: bytes) -> None:
        """Delay the next change that contains these bytes."""
        self._awaited = awaited
        self.arrived.clear()
        self._released.clear()

    def release(self) -> None:
        """Let the delayed change continue."""
        self._released.set()

    def pass_by(self, body: bytes) -> None:
        """Wait if a test has delayed this change; the gate calls this method for all changes."""
        if self._awaited and self._awaited in body:
            self._awaited = b""
            self.arrived.set()
            self._released.wait(60)


@dataclass
class RestCatalog:
    """A running catalog.

    Attributes:
        port: the gate's port on the loopback interface.
        behind: the port of the server itself.
        warehouse: the name of the only warehouse.
        client_id: the id of the client that may get a token.
        client_secret: the client's secret.
        vended: returns the store's keys and settings for a client that requests the table with this path.
        token_seconds: how long a token is valid.
        announced_seconds: the validity that the answer with a token claims; None for the real validity.
        asked_for: the scopes and delegations that clients have requested.
        held: delays a change.
    """

    port: int
    behind: int
    warehouse: str = "production"
    client_id: str = "lakefeed"
    client_secret: str = field(default_factory=lambda: secrets.token_hex(12), repr=False)
    vended: Callable[[str], Mapping[str, str]] = field(default=lambda _: {}, repr=False)
    token_seconds: float = 3600
    announced_seconds: float | None = None
    asked_for: list[str] = field(default_factory=list)
    held: Held = field(default_factory=lambda: Held(), repr=False)
    _tokens: dict[str, float] = field(default_factory=dict, repr=False)
    late: threading.Event = field(default_factory=threading.Event, repr=False)
    """When a test sets this event, a ``late-`` change is applied."""
    applied_late: threading.Event = field(default_factory=threading.Event, repr=False)
    refused_reads: int = 0
    """After all faults have occurred, the gate refuses this many reads of tables."""
    breaks_creations: bool = False
    """Whether the faults of changes also hit creations of tables."""
    deviation: deviations.Deviation = deviations.none
    """What the catalog does against the protocol."""
    _faults: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        """The catalog's address for clients."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def credential(self) -> str:
        """``id:secret``."""
        return f"{self.client_id}:{self.client_secret}"

    def token(self, *, seconds: float | None = None) -> str:
        """Return a new bearer token."""
        token = secrets.token_hex(16)
        self._tokens[token] = time.monotonic() + (self.token_seconds if seconds is None else seconds)
        return token

    def is_valid(self, authorization: str) -> bool:
        """Check that the token of this header is valid."""
        return self._tokens.get(authorization.removeprefix("Bearer "), 0) > time.monotonic()

    def fail_next(self, *faults: Fault) -> None:
        """Set the faults of the next changes of tables, one fault for each change; a retry gets the next fault."""
        with self._lock:
            self._faults[:] = faults

    @property
    def has_faults(self) -> bool:
        """True while some fault has not occurred yet."""
        return bool(self._faults)

    def next_fault(self) -> Fault | None:
        """Remove and return the next fault."""
        with self._lock:
            return self._faults.pop(0) if self._faults else None


class _Gate(Handler):
    catalog: RestCatalog

    def answer(self, body: bytes) -> None:
        path = urlsplit(self.path).path
        if path == TOKENS:
            self._trade(parse_qs(body.decode()))
            return
        if not self.catalog.is_valid(self.headers.get("authorization", "")):
            self._refuse(401, "NotAuthorizedException", "the token is missing, wrong or has expired")
            return
        awaited = parse_qs(urlsplit(self.path).query).get("warehouse", [self.catalog.warehouse])
        if path == "/v1/config" and awaited != [self.catalog.warehouse]:
            self._refuse(404, "NotFoundException", f"there is no warehouse {awaited[0]}")
            return
        changes = self.command == "POST" and "/tables/" in path and not path.endswith("/metrics")
        changes |= self.command == "POST" and path.endswith("/tables") and self.catalog.breaks_creations
        if changes:
            self.catalog.held.pass_by(body)
        if path.endswith("/credentials"):
            self.catalog.asked_for.append("credentials")
            vended = {"prefix": "s3://", "config": self.catalog.vended(path.removesuffix("/credentials"))}
            self.send(200, json.dumps({"storage-credentials": [vended]}).encode())
            return
        fault = (self.catalog.next_fault() or None) if changes else None
        if not changes and "/tables/" in path and self.catalog.refused_reads and not self.catalog.has_faults:
            self.catalog.refused_reads -= 1
            self._refuse(401, "NotAuthorizedException", "on purpose")
            return
        is_applied = fault is None or fault.startswith("applied-")
        status, answer = self._forward(body) if is_applied else (200, b"{}")
        if fault is None:
            self.send(status, self._with_credentials(answer))
            return
        if fault.startswith("late-"):
            threading.Thread(target=copy(self)._forward_late, args=(body,), daemon=True).start()
        kind = fault.removeprefix("not-").partition("-")[2]
        if kind.isdigit():
            kinds = {409: "CommitFailedException", 503: "ServiceUnavailableException"}
            self._refuse(int(kind), kinds.get(int(kind), "InternalServerError"), "on purpose")
            return
        if kind.startswith("html-"):
            page = b"<html><h1>On purpose</h1></html>"
            self.send(int(kind.removeprefix("html-")), page, {"content-type": "text/html"})
            return
        if kind == "silent":
            time.sleep(SILENCE_SECONDS)
        self.close_connection = True
        if kind == "cut":
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer) + 100))
            self.end_headers()
            self.wfile.write(answer[: len(answer) // 2])

    def _trade(self, form: Mapping[str, list[str]]) -> None:
        given = [form.get(name, [""])[0] for name in ("grant_type", "client_id", "client_secret")]
        catalog = self.catalog
        catalog.asked_for.append(f"{given[0].rpartition(':')[2]} {form.get('scope', [''])[0]}")
        # As at many login servers, a token cannot be exchanged for a new token.
        if given == ["client_credentials", catalog.client_id, catalog.client_secret]:
            token = catalog.token()
            seconds = catalog.announced_seconds or catalog.token_seconds
            answer = {"access_token": token, "token_type": "bearer", "expires_in": int(seconds)}
            self.send(200, json.dumps(answer).encode())
        elif given[0] == "client_credentials":
            self.send(401, json.dumps({"error": "invalid_client", "error_description": "unknown client"}).encode())
        else:
            self.send(400, json.dumps({"error": "unsupported_grant_type"}).encode())

    def _forward(self, body: bytes) -> tuple[int, bytes]:
        kept = ("accept", "content-type", "x-client-version", "idempotency-key", "if-none-match")
        headers = {name: value for name, value in self.headers.items() if name.lower() in kept}

        def send(sent: bytes) -> deviations.Answer:
            status, _, answer = self.forward(f"{LOOPBACK}:{self.catalog.behind}", sent, headers)
            return status, answer

        return self.catalog.deviation(deviations.kind_of(self.command, self.path), body, send)

    def _forward_late(self, body: bytes) -> None:
        if self.catalog.late.wait(60):
            self._forward(body)
            self.catalog.applied_late.set()

    def _with_credentials(self, answer: bytes) -> bytes:
        """Add the store's keys to an answer with a table, for clients that request them."""
        delegation = self.headers.get("x-iceberg-access-delegation", "")
        if "vended-credentials" not in delegation or b'"metadata-location"' not in answer:
            return answer
        self.catalog.asked_for.append(f"delegation {delegation}")
        document = json.loads(answer)
        document.setdefault("config", {}).update(self.catalog.vended(urlsplit(self.path).path))
        return json.dumps(document).encode()

    def _refuse(self, status: int, kind: str, message: str) -> None:
        error = {"error": {"message": message, "type": kind, "code": status}}
        self.send(status, b"" if status == NOT_MODIFIED else json.dumps(error).encode())


@contextmanager
def rest_catalog(
    *, warehouse: str, properties: Mapping[str, str] | None = None, vended: Mapping[str, str] | None = None
) -> Iterator[RestCatalog]:
    """Run a REST catalog, whose own database is a SQLite file, until the block ends.

    Args:
        warehouse: the location of tables: ``s3://bucket/path`` or ``file:///path``.
        properties: the server's settings, such as the store's endpoint and keys.
        vended: the settings for clients that request vended credentials.
    """
    behind = choose_free(avoid=())
    with TemporaryDirectory(prefix="lakefeed-rest-", ignore_cleanup_errors=True) as folder:
        settings = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{folder}/catalog.db",
            "jdbc.schema-version": "V1",
            "warehouse": warehouse,
            "http-client.type": "urlconnection",
            **(properties or {}),
        }
        command = java_command(_class_path(), Path(__file__).parent / "RestCatalog.java", behind)
        environment = {"CATALOG_PROPERTIES": "\n".join(f"{key}={value}" for key, value in settings.items())}
        url = f"http://{LOOPBACK}:{behind}/v1/config"
        with running(
            command, log=Path(folder, "log"), ready=lambda: answers(url), environment={**os.environ, **environment}
        ):
            catalog = RestCatalog(port=0, behind=behind, vended=lambda _: vended or {})
            with serving(type("Gate", (_Gate,), {"catalog": catalog})) as catalog.port:
                yield catalog


@contextmanager
def rest_catalog_on(stack: Endpoints) -> Iterator[RestCatalog]:
    """Run a catalog on the stack's store, whose keys it gives to clients that request vended credentials."""
    keys = {"s3.access-key-id": stack.access_key, "s3.secret-access-key": stack.secret_key.get_secret_value()}
    store = {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": stack.s3_endpoint,
        "s3.path-style-access": "true",
        "client.region": stack.region,
    }
    with rest_catalog(warehouse=f"{stack.warehouse}/rest", properties={**store, **keys}, vended=keys) as server:
        yield server


def _class_path() -> list[Path]:
    import pyspark

    bundled = Path(pyspark.__file__).parent / "jars"
    hadoop = [path for path in bundled.iterdir() if path.name.startswith(("hadoop-client", "slf4j-api", "jcl-over"))]
    # Use the S3 client and SQLite of the Spark sessions, but not their Iceberg, which has another version than the
    # server.
    sessions = [path for path in jars.fetch(["spark"]) if not path.name.startswith(("iceberg", "spark", "kafka"))]
    return [*jars.fetch(["test-iceberg-rest"]), *hadoop, *sessions]
