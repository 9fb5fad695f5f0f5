"""OpenLineage's published schemas, and a server that receives events."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

from lakefeed_testing.schemas import HttpAnswer, HttpRequest, serve_http

SPECIFICATION = Path(__file__).parents[1] / "data" / "openlineage"


def documents() -> dict[str, Any]:
    found = (json.loads(path.read_text()) for path in SPECIFICATION.rglob("*.json"))
    return {document["$id"]: document for document in found}


DOCUMENTS = documents()
REGISTRY: Registry[Any] = Registry().with_resources(
    (address, Resource.from_contents(document)) for address, document in DOCUMENTS.items()
)


def validator(address: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": address}, registry=REGISTRY, format_checker=FormatChecker())


def problems(event: dict[str, Any]) -> list[str]:
    """Return the validation errors of an event and of its facets."""
    found = [error.message for error in validator(event["schemaURL"]).iter_errors(event)]
    places = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    for place in places:
        for key in ("facets", "inputFacets", "outputFacets"):
            for name, facet in place.get(key, {}).items():
                assert facet["_schemaURL"].partition("#")[0] in DOCUMENTS
                found += [f"{name}: {error.message}" for error in validator(facet["_schemaURL"]).iter_errors(facet)]
    return found


@contextmanager
def server(*, status: int = 201) -> Iterator[tuple[str, list[dict[str, Any]], list[str | None]]]:
    """Run a lineage server; yield its address, the events that it receives, and the API keys of these requests."""
    events: list[dict[str, Any]] = []
    keys: list[str | None] = []

    def take(request: HttpRequest) -> HttpAnswer:
        assert request.path == "/api/v1/lineage"
        keys.append(request.headers.get("authorization"))
        events.append(json.loads(request.body))
        return HttpAnswer(status)

    with serve_http(take) as address:
        yield address, events, keys
