"""A schema registry in this process: it serves Confluent's paths over HTTP, and can fail on demand."""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from contextlib import ExitStack
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

from lakefeed_testing.schemas import HttpAnswer, HttpRequest, serve_http


class RegistryInAThread:
    """Serves the schemas of ``put`` on a free port of the loopback interface.

    Attributes:
        schemas: the answer's JSON object for each id.
        versions: the answer's JSON object for each (subject, version).
        credentials: the ``user:password`` that the registry requires; None if no login is required.
        failing: the HTTP status of all answers; None for normal answers.
        context: a context such as ":.staging:"; an id is then only found with a subject of this context.
        raw: the body of all answers; None for normal answers.
        requests: the number of requests of each path.
        held: an event by path; the answers for this path wait for the event.
        url: the base address.
        port: the port that the registry listens on.
    """

    def __init__(self, *, credentials: str | None = None, port: int = 0) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.versions: dict[tuple[str, int], dict[str, Any]] = {}
        self.credentials = credentials
        self.failing: int | None = None
        self.raw: bytes | None = None
        self.context = ""
        self.requests: Counter[str] = Counter()
        self.held: dict[str, threading.Event] = {}
        self._running = ExitStack()
        self.url = self._running.enter_context(serve_http(self._answer, port=port))
        self.port = int(urlsplit(self.url).port or 0)

    def put(self, schema_id: int, schema: Any, *, references: list[dict[str, Any]] | None = None) -> None:
        """Register an Avro schema, given as Python objects, under an id."""
        answer: dict[str, Any] = {"schema": json.dumps(schema)}
        if references:
            answer["references"] = references
        self.schemas[schema_id] = answer

    def __enter__(self) -> RegistryInAThread:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def _answer(self, request: HttpRequest) -> HttpAnswer:
        path, _, query = request.path.partition("?")
        self.requests[path] += 1
        if (held := self.held.get(path)) is not None:
            held.wait(60)
        if self.raw is not None:
            return HttpAnswer(200, self.raw)
        if path.startswith("/schemas/ids/") and self.context not in unquote(query):
            return HttpAnswer(404, b'{"error_code": 40403, "message": "Schema not found in the default context"}')
        status, body = self._found(path, request.headers.get("authorization"))
        return HttpAnswer(status, json.dumps(body).encode())

    def _found(self, path: str, authorization: str | None) -> tuple[int, Any]:
        if self.failing is not None:
            return self.failing, {"message": "made to fail"}
        if self.credentials is not None:
            expected = "Basic " + base64.b64encode(self.credentials.encode()).decode()
            if authorization != expected:
                return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = [unquote(part) for part in path.strip("/").split("/")]
        found: dict[str, Any] | None = None
        if parts[:2] == ["schemas", "ids"] and parts[3:] == ["versions"]:
            same = [at for at, version in self.versions.items() if version["id"] == int(parts[2])]
            return 200, [{"subject": subject, "version": version} for subject, version in same]
        if parts[:2] == ["schemas", "ids"]:
            found = self.schemas.get(int(parts[2]))
        elif parts == ["subjects"]:
            return 200, sorted({subject for subject, _ in self.versions})
        elif parts[0] == "subjects" and parts[2:] == ["versions"]:
            return 200, sorted(version for subject, version in self.versions if subject == parts[1])
        elif parts[0] == "subjects" and parts[2] == "versions":
            newest = max((version for subject, version in self.versions if subject == parts[1]), default=0)
            found = self.versions.get((parts[1], newest if parts[3] == "latest" else int(parts[3])))
        else:
            return 404, {"message": "no such path"}
        return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
