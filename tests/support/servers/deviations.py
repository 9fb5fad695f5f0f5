"""Deviations of real REST catalogs from the protocol; a gate before Iceberg's own server imitates them."""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

Answer: TypeAlias = tuple[int, bytes]
Deviation: TypeAlias = Callable[[str, bytes, Callable[[bytes], Answer]], Answer]
"""Answers a request of a kind (``kind_of``), with a function that sends a body to the server."""


def kind_of(method: str, path: str) -> str:
    """Return the kind of a request: its method, with ``creation`` or ``commit`` in place of POST."""
    if method != "POST" or path.endswith("/metrics"):
        return "purge" if "purgeRequested=True" in path else method
    return "commit" if "/tables/" in path else "creation" if path.endswith("/tables") else method


def none(_: str, body: bytes, send: Callable[[bytes], Answer]) -> Answer:
    """Answer as the server does."""
    return send(body)


def _refusal(status: int, kind: str) -> Answer:
    return status, json.dumps({"error": {"message": "Commit validation failed", "type": kind, "code": status}}).encode()


def _always(answer: Answer, *kinds: str) -> Deviation:
    return lambda kind, body, send: answer if kind in kinds else send(body)


def conflict_400(kind: str, body: bytes, send: Callable[[bytes], Answer]) -> Answer:
    """Answer a conflict by 400, as Databricks' Unity Catalog does: apache/iceberg#16644."""
    answer = send(body)
    return _refusal(400, "BadRequestException") if (kind, answer[0]) == ("commit", 409) else answer


def creation_502(kind: str, body: bytes, send: Callable[[bytes], Answer]) -> Answer:
    """Create tables, and answer by 502."""
    answer = send(body)
    return (502, b"") if kind == "creation" else answer


def _ignoring(is_ignored: Callable[[Any], bool]) -> Deviation:
    def answer(kind: str, body: bytes, send: Callable[[bytes], Answer]) -> Answer:
        if kind == "commit":
            commit = json.loads(body)
            kept = [each for each in commit["requirements"] if "ref" not in each or not is_ignored(each["snapshot-id"])]
            body = json.dumps({**commit, "requirements": kept}).encode()
        return send(body)

    return answer


def _losing(is_lost: Callable[[str], bool]) -> Deviation:
    def without(value: Any) -> Any:
        if isinstance(value, list):
            return [without(each) for each in value]
        return {k: without(v) for k, v in value.items() if not is_lost(k)} if isinstance(value, dict) else value

    def answer(kind: str, body: bytes, send: Callable[[bytes], Answer]) -> Answer:
        status, found = send(body)
        return status, json.dumps(without(json.loads(found))).encode() if kind == "GET" and found else found

    return answer


def stale() -> Deviation:
    """Return a catalog that answers for each table with the state at its first load."""
    first: dict[Any, Answer] = {}

    def answer(kind: str, body: bytes, send: Callable[[bytes], Answer]) -> Answer:
        status, found = send(body)
        is_table = kind == "GET" and b'"metadata-location"' in found
        return (
            first.setdefault(json.loads(found)["metadata"]["table-uuid"], (status, found))
            if is_table
            else (status, found)
        )

    return answer


first_ignored = _ignoring(lambda snapshot: snapshot is None)  # Nessie answers like this: projectnessie/nessie#10062.
all_ignored = _ignoring(lambda _: True)
html = _always((404, b"<html><h1>Not Found</h1></html>"), "commit")
no_numbers = _losing(lambda key: key == "sequence-number")
no_keys = _losing(lambda key: key.startswith("lakefeed."))
no_creation = _always(_refusal(403, "ForbiddenException"), "creation")
no_purge = _always(_refusal(403, "ForbiddenException"), "purge")
no_drop = _always(_refusal(403, "ForbiddenException"), "purge", "DELETE")


def creation_502_no_drop(kind: str, body: bytes, send: Callable[[bytes], Answer]) -> Answer:
    """Create tables, answer by 502, and refuse to drop them."""
    return creation_502(kind, body, lambda sent: no_drop(kind, sent, send))
