"""The schemas with which one case's records are encoded, and a registry that serves these schemas."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote

from lakefeed.config.decoding import Encoded
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ConfigError
from lakefeed.records.decode.registry import KINDS, SchemaText
from lakefeed.records.decode.resolve import Part
from lakefeed_testing.settings import Case, CaseSchema, PipelineTests


@dataclass(frozen=True, kw_only=True)
class CaseSchemas:
    """The schemas of one case.

    Attributes:
        texts: the schemas by id.
        subjects: the schema ids by subject, the newest last.
        first: the newest schema id when the case starts, which is the default for values; None without a registry.
        newest_key: the default schema id of keys.
    """

    texts: Mapping[int, SchemaText]
    subjects: Mapping[str, tuple[int, ...]]
    first: int | None
    newest_key: int | None

    @classmethod
    def of(cls, tests: PipelineTests, case: Case, config: PipelineConfig) -> Self:
        """Return the schemas of a case; refuse a case whose ``latest`` is not the id of one of them."""
        topics = list(dict.fromkeys([*_topics(config), *(each.topic for each in case.records if each.topic)]))
        values = _subjects(config.decode, topics, "value")
        keys = _subjects(config.decode.key, topics, "key") if config.decode.key is not None else []
        texts, subjects = {}, dict[str, list[int]]()
        for schema_id, schema in sorted(tests.schemas.items()):
            its = [schema.subject] if schema.subject is not None else values
            how = config.decode.key if config.decode.key is not None and set(its) <= set(keys) else config.decode
            kind = KINDS.get(how.kind, "AVRO")
            texts[schema_id] = SchemaText(text=_text(schema, kind), kind=kind)
            for subject in its:
                subjects.setdefault(subject, []).append(schema_id)
        if case.latest is not None and case.latest not in texts:
            raise ConfigError(
                f"latest is the schema id {case.latest}, which is not in tests.schemas",
                where="tests.cases",
                hint=f"tests.schemas has {', '.join(map(str, texts)) or 'no schemas'}",
            )
        of_values = [number for subject in values for number in subjects.get(subject, ())]
        used = [each.schema_id for each in case.records if each.value is not None]
        named = used[0] if used and used[0] in of_values else next(iter(of_values), None)
        first = named if case.latest is None else case.latest
        for subject in values:
            # ``first`` comes last, because it is the newest id when the feed starts. Decoders look other schemas up by
            # id.
            ids = subjects.get(subject, [])
            ids.sort(key=lambda number: (number == first, number))
        newest_key = next((subjects[subject][-1] for subject in keys if subject in subjects), None)
        return cls(
            texts=texts,
            subjects={subject: tuple(ids) for subject, ids in subjects.items()},
            first=first,
            newest_key=newest_key,
        )

    def versions(self) -> SchemaVersions:
        return SchemaVersions(schemas=self.texts, subjects=self.subjects)


def _topics(config: PipelineConfig) -> list[str]:
    numbered = config.source.numbered
    return list(numbered.topics or ()) if numbered is not None else []


def _subjects(encoded: Encoded, topics: list[str], part: Part) -> list[str]:
    """Return the subjects of the values or keys: one per topic, unless the pipeline file names one."""
    return [encoded.subject] if encoded.subject else [f"{topic}-{part}" for topic in topics]


def _text(schema: CaseSchema, kind: str) -> str:
    if schema.schema_file is not None:
        return schema.schema_file.read_text("utf-8")
    if isinstance(schema.schema_, str):
        return schema.schema_
    return json.dumps(_with_null_types(schema.schema_) if kind == "AVRO" else schema.schema_)


def _with_null_types(schema: Any) -> Any:
    """Replace None by "null" in an Avro schema: YAML reads the type null without quotes as None."""
    if isinstance(schema, list):
        return [_with_null_types(each) for each in schema]
    if isinstance(schema, dict):
        types = {name: _with_null_types(schema[name]) for name in ("type", "items", "values") if name in schema}
        fields = schema.get("fields")
        inner = {"fields": [_with_null_types(each) for each in fields]} if isinstance(fields, list) else {}
        return {**schema, **types, **inner}
    return "null" if schema is None else schema


NOT_FOUND = {"error_code": 40403, "message": "Schema not found"}


@dataclass(frozen=True, kw_only=True)
class SchemaVersions:
    """The schemas that the registry serves for one case: schemas by id, and schema ids by subject, oldest first."""

    schemas: Mapping[int, SchemaText] = field(default_factory=dict)
    subjects: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def answer(self, parts: list[str]) -> Any:
        """Return the answer to a request of Confluent's API by its path; None if the schema or path does not exist."""
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
    """Serves schemas while ``running``, at a URL per case, because decoders cache schemas by URL."""

    def __init__(self, address: str, versions: list[SchemaVersions]) -> None:
        self._address, self._versions = address, versions

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[CaseRegistry]:
        """Run a registry until the block ends."""
        versions: list[SchemaVersions] = []

        def answer(request: HttpRequest) -> HttpAnswer:
            path = request.path.partition("?")[0]  # Drop the query, which only names a context of the registry.
            number, *parts = (unquote(part) for part in path.strip("/").split("/"))
            found = versions[int(number)].answer(parts)
            return HttpAnswer(404 if found is None else 200, json.dumps(NOT_FOUND if found is None else found).encode())

        with serve_http(answer) as address:
            yield cls(address, versions)

    def serve(self, versions: SchemaVersions) -> str:
        """Serve the schemas of one case; return the URL of its registry."""
        self._versions.append(versions)
        return f"{self._address}/{len(self._versions) - 1}"


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """A request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class HttpAnswer:
    """An answer; the server adds ``Content-Length``."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def serve_http(answer: Callable[[HttpRequest], HttpAnswer], *, port: int = 0) -> Iterator[str]:
    """Answer requests with a function until the block ends; yield the URL without a final slash.

    The server calls ``answer`` in one thread per request. Port 0 stands for a free port.
    """

    class Handler(BaseHTTPRequestHandler):
        wbufsize = -1  # Send an answer as one packet: Nagle's algorithm would delay a second packet.

        def handle_one_request(self) -> None:
            # Accept any method: the base class would need a function per method, such as do_GET.
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            given = answer(
                HttpRequest(
                    method=self.command,
                    path=self.path,
                    headers={name.lower(): value for name, value in self.headers.items()},
                    body=self.rfile.read(int(self.headers.get("Content-Length", 0))),
                )
            )
            self.send_response(given.status)
            for name, value in {"Content-Length": str(len(given.body)), **given.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(given.body)
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name of the base class)
            """Write nothing: the base class would write a line per request to stderr."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
