"""A proxy that adds GUIDs, as Confluent's registry has them, to a schema registry without GUIDs.

Answers about one schema get the field ``guid``, and these paths are added, as Confluent's and Redpanda's registries
answer them:

- ``GET /schemas/guids/{guid}``: the schema.
- ``GET /schemas/guids/{guid}/ids``: a list with ``context`` and ``id`` per context; empty for an unknown GUID.

All other requests reach the registry behind it unchanged. The GUID is a hash of kind and schema, as Confluent's.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lakefeed_testing.schemas import HttpAnswer, HttpRequest, serve_http

_NAMESPACE = uuid.UUID(int=0)


@contextmanager
def registry_with_guids(url: str) -> Iterator[str]:
    """Serve the registry at ``url`` with GUIDs until the block ends; yield the address."""
    ids: dict[str, int] = {}

    def forward(method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        kind = {"content-type": "application/vnd.schemaregistry.v1+json"}
        request = urllib.request.Request(url + path, method=method, headers=kind, data=body or None)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read()

    def guid(schema_id: int) -> str:
        schema: Any = json.loads(forward("GET", f"/schemas/ids/{schema_id}")[1])
        found = str(uuid.uuid5(_NAMESPACE, schema.get("schemaType", "AVRO") + schema["schema"]))
        ids[found] = schema_id
        return found

    def answer(request: HttpRequest) -> HttpAnswer:
        parts = request.path.partition("?")[0].strip("/").split("/")
        if parts[:2] == ["schemas", "guids"]:
            schema_id = ids.get(parts[2])
            if parts[3:] == ["ids"]:
                known = [] if schema_id is None else [{"context": ".", "id": schema_id}]
                return HttpAnswer(200, json.dumps(known).encode())
            status, body = forward("GET", f"/schemas/ids/{schema_id or 0}")
        else:
            status, body = forward(request.method, request.path, request.body)
        found: Any = json.loads(body) if status == 200 else None
        if isinstance(found, dict) and {"id", "schema"} & found.keys():
            found["guid"] = guid(int(found.get("id") or (parts[2] if parts[1] == "ids" else ids[parts[2]])))
            body = json.dumps(found).encode()
        return HttpAnswer(status, body, {"Content-Type": "application/vnd.schemaregistry.v1+json"})

    with serve_http(answer) as address:
        yield address
