"""Requests and answers as JSON; an answer has bounded texts, and no secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lakefeed.messages.text import json_line
from lakefeed.operations.endpoint import Document, Refused, json_object


class JsonResponse(Response):
    """A document as JSON."""

    media_type = "application/json; charset=utf-8"

    def __init__(self, document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(json_line(document).encode(), status_code=status, headers=headers)


async def document_of(request: Request) -> Document:
    """Read a request's body as an object of JSON."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "the body is JSON", "Content-Type: application/json")
    return json_object(await request.body())
