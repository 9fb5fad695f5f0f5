"""Requests end within their deadline and their maximum size, whatever a server sends."""

import hashlib
import http.client
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import SecretStr

from lakefeed.clients import http as http_client
from lakefeed.clients.http import connect, exchange
from lakefeed.clients.iceberg.catalogs import ask_rest_catalog
from lakefeed.clients.iceberg.reader import open_catalog
from lakefeed.clients.s3 import require_bucket
from lakefeed.clients.spark import jars
from lakefeed.config.connections import S3, Catalog, Connections
from lakefeed.errors import ConfigError, DownloadError, LakefeedError, Unreachable
from lakefeed.records.decode import registry as registry_api
from lakefeed.records.decode.registry import SchemaRegistry
from tests.support.misbehaving import Manner, misbehaving
from tests.support.registry_in_a_thread import RegistryInAThread

ENDING: dict[Manner, type[Exception] | int] = {
    "silent": TimeoutError,
    "drip": TimeoutError,
    "drip_headers": (TimeoutError, http.client.HTTPException),  # type: ignore[dict-item]
    "endless": http.client.HTTPException,
    "huge": http.client.HTTPException,
    "cut": http.client.IncompleteRead,
    "garbage": http.client.HTTPException,
    "redirect": 302,
    "error": 500,
    "busy": 429,
}


def concurrently(cases: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Run functions that wait, all at the same time; return the results or errors by name."""

    def result(case: Callable[[], Any]) -> Any:
        try:
            return case()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(cases)) as threads:
        return dict(zip(cases, threads.map(result, cases.values()), strict=True))


def test_an_exchange_with_a_misbehaving_server_ends_in_time() -> None:
    def asked(manner: Manner) -> int:
        with misbehaving(manner) as address:
            return exchange("GET", f"http://{address}/a?b", seconds=0.5, headers={}).status

    began = time.monotonic()
    found = concurrently({manner: lambda manner=manner: asked(manner) for manner in get_args(Manner)})  # type: ignore[misc]
    assert time.monotonic() - began < 10
    assert found.keys() == ENDING.keys()
    for manner, ending in ENDING.items():
        assert found[manner] == ending if isinstance(ending, int) else isinstance(found[manner], ending), manner


def test_an_answer_of_exactly_the_maximum_size_is_accepted() -> None:
    with RegistryInAThread() as registry:
        registry.schemas[1] = {"schema": "x" * 100}
        url = f"{registry.url}/schemas/ids/1"
        body = exchange("GET", url, seconds=5, headers={}).body
        assert exchange("GET", url, seconds=5, headers={}, most_bytes=len(body)).body == body
        with pytest.raises(http.client.HTTPException, match=f"more than {len(body) - 1} bytes"):
            exchange("GET", url, seconds=5, headers={}, most_bytes=len(body) - 1)


@pytest.mark.parametrize("manner", ["silent", "drip", "huge"])
def test_every_client_stops_waiting_for_a_misbehaving_server(
    manner: Manner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(registry_api, "TIMEOUT_SECONDS", 0.4)
    monkeypatch.setitem(http_client.ask.__kwdefaults__ or {}, "timeout", 0.4)
    monkeypatch.setenv("LAKEFEED_CACHE", str(tmp_path))
    monkeypatch.setattr(jars, "_TIMEOUT_SECONDS", 0.4)
    monkeypatch.setattr(jars, "_PAUSE_SECONDS", 0.01)
    began = time.monotonic()
    with misbehaving(manner) as address:
        url = f"http://{address}"
        catalog = Catalog(type="rest", uri=url, token=SecretStr("t"))
        artifact = jars.Artifact(coordinate="a:jar:1", groups=(), sha256=hashlib.sha256().hexdigest(), size=10**9)
        cases: dict[str, Callable[[], Any]] = {
            "registry": SchemaRegistry(url).subjects,
            "store": lambda: require_bucket("b", s3=S3(endpoint=url), keys=None, timeout=0.4),
            "catalog": lambda: ask_rest_catalog(catalog),
        }
        if manner != "huge":  # For a download, a huge answer is normal.
            cases["download"] = lambda: jars.download(
                artifact, jars.Repository(url=url), report=lambda _: None, stop=threading.Event()
            )
        if manner == "silent":
            limited = catalog.model_copy(update={"properties": {"rest.client.socket-timeout-ms": "400"}})
            cases["tables"] = lambda: open_catalog("c", connections=Connections(catalogs={"c": limited}))
        found = concurrently(cases)
    assert time.monotonic() - began < 10
    for name, error in found.items():
        assert isinstance(error, DownloadError if name == "download" else Unreachable), (name, error)


@pytest.mark.parametrize("answer", ["[]", '{"subject": 5}', "null", '"x"', "[" * 100_000])
def test_a_server_that_answers_other_json_is_not_mistaken_for_a_registry(answer: str) -> None:
    with RegistryInAThread() as registry:
        registry.raw = answer.encode()
        client = SchemaRegistry(registry.url)
        for asked in (lambda: client.latest("s"), lambda: client.schema(1), lambda: client.register("s", "{}")):
            with pytest.raises(ConfigError, match="not the address of a schema registry"):
                asked()


def test_a_request_to_a_registry_is_retried_after_a_server_error() -> None:
    with RegistryInAThread() as registry:
        registry.put(1, {"type": "string"})
        registry.failing = 503
        threading.Timer(0.1, lambda: setattr(registry, "failing", None)).start()
        assert SchemaRegistry(registry.url).schema(1).text == '{"type": "string"}'
        registry.failing = 503
        with pytest.raises(LakefeedError, match="HTTP status 503"):
            SchemaRegistry(registry.url).schema(1)


def test_a_lookup_that_takes_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(30) and [])
    began = time.monotonic()
    try:
        with pytest.raises(TimeoutError, match="the name broken was not looked up"):
            connect("broken", 80, seconds=0.2)
    finally:
        over.set()
    assert time.monotonic() - began < 10


@pytest.mark.waits
def test_all_addresses_of_a_host_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the addresses answers, because the server's queue of connections is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        held = [socket.socket() for _ in range(4)]
        for each in held:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        silent = (socket.AF_INET, socket.SOCK_STREAM, 0, "", full.getsockname())
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [silent] * 30)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            connect("many", 80, seconds=1.5)
        assert time.monotonic() - began < 10
        for each in held:
            each.close()


def test_connect_tries_the_next_address_after_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        refusing = gone.getsockname()
    with socket.create_server(("127.0.0.1", 0)) as server:
        found: list[Any] = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in (refusing, server.getsockname())
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with connect("two", 80, seconds=5) as sock:
            assert (sock.getpeername(), sock.gettimeout()) == (server.getsockname(), 5)


@pytest.mark.parametrize(("host", "error"), [("a" * 70 + ".example", ValueError), ("no.such.invalid", OSError)])
def test_an_invalid_or_unknown_name_is_an_error(host: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        connect(host, 80, seconds=20)
