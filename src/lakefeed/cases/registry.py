"""A schema registry in this process, with the schemas of test cases."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

from lakefeed.records.decode.registry import SchemaText

NOT_FOUND = {"error_code": 40403, "message": "Schema not found"}


@dataclass(frozen=True, kw_only=True)
class SchemaVersions:
    """The schemas that one case sees.

    Attributes:
        schemas: by id.
        subjects: the ids of each subject, oldest first; a schema that is in none is found by its id alone.
    """

    schemas: Mapping[int, SchemaText] = field(default_factory=dict)
    subjects: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def answer(self, parts: list[str]) -> Any:
        """Return the answer to a path of Confluent's API; None if there is no such schema or path."""
        match parts:
            case ["subjects"]:
                return sorted(self.subjects)
            case ["subjects", subject, "versions"]:
                return [version for version, _ in enumerate(self.subjects.get(subject, ()), start=1)] or None
            case ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case ["schemas", "ids", schema_id]:
                found = self.schemas.get(int(schema_id)) if schema_id.isdigit() else None
                return None if found is None else _content(found)
            case ["schemas", "ids", schema_id, "versions"]:
                return [
                    {"subject": subject, "version": version}
                    for subject, ids in self.subjects.items()
                    for version, each in enumerate(ids, start=1)
                    if str(each) == schema_id
                ]
        return None

    def _version(self, subject: str, version: str) -> dict[str, Any] | None:
        ids = self.subjects.get(subject, ())
        number = len(ids) if version == "latest" else int(version) if version.isdigit() else 0
        if not 0 < number <= len(ids):
            return None
        schema_id = ids[number - 1]
        return {"subject": subject, "version": number, "id": schema_id, **_content(self.schemas[schema_id])}


def _content(schema: SchemaText) -> dict[str, Any]:
    kind = {} if schema.kind == "AVRO" else {"schemaType": schema.kind}
    return {"schema": schema.text, **kind}


class CaseRegistry:
    """Serves schemas on a free port of the loopback interface; use it as a context manager.

    Each case has an address of its own, because decoders keep the schemas of an address.
    """

    def __init__(self) -> None:
        self._versions: list[SchemaVersions] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve(self, versions: SchemaVersions) -> str:
        """Serve the schemas of one case; return the address of their registry."""
        self._versions.append(versions)
        return f"http://127.0.0.1:{self._server.server_address[1]}/{len(self._versions) - 1}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        all_versions = self._versions

        class Handler(BaseHTTPRequestHandler):
            wbufsize = -1  # One packet for an answer: two would wait for each other.

            def do_GET(self) -> None:
                number, *parts = (unquote(part) for part in self.path.strip("/").split("/"))
                found = all_versions[int(number)].answer(parts)
                content = json.dumps(NOT_FOUND if found is None else found).encode()
                self.send_response(404 if found is None else 200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name of the base class)
                """Write no log."""

        return Handler
