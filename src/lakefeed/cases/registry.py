"""A schema registry in this process, with the schemas of test cases."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from lakefeed.clients.http_server import HttpAnswer, HttpRequest, serve_http
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
    """Serves schemas while ``running``.

    Each case has an address of its own, because decoders keep the schemas of an address.
    """

    def __init__(self, address: str, versions: list[SchemaVersions]) -> None:
        self._address, self._versions = address, versions

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[CaseRegistry]:
        """Run a registry until the block ends."""
        versions: list[SchemaVersions] = []

        def answer(request: HttpRequest) -> HttpAnswer:
            path = request.path.partition("?")[0]  # a query asks for the context, and a case has one
            number, *parts = (unquote(part) for part in path.strip("/").split("/"))
            found = versions[int(number)].answer(parts)
            return HttpAnswer(404 if found is None else 200, json.dumps(NOT_FOUND if found is None else found).encode())

        with serve_http(answer) as address:
            yield cls(address, versions)

    def serve(self, versions: SchemaVersions) -> str:
        """Serve the schemas of one case; return the address of their registry."""
        self._versions.append(versions)
        return f"{self._address}/{len(self._versions) - 1}"
