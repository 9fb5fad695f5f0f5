"""Check requests before the dashboard's routes: host, caller, origin, method, size and time.

Answers are JSON with texts of limited length and without secrets.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Mapping, MutableMapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakefeed.messages.text import json_line
from lakefeed.operations.endpoint import Document, Refused, json_object
from lakefeed_dashboard.access import PROBES, Access, Attempts, Audit, Caller, is_own_user, network_of

_log = logging.getLogger(__name__)

MOST_BODY = 64 * 1024
REQUEST_SECONDS = 30.0
STREAM = "/api/stream"
_HTTP_ERRORS = {404: "there is no such page", 405: "this page has another method"}
METHODS = ("GET", "POST")
CSRF = "x-csrf-token"

SAFE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    # "no-referrer" would remove the Origin header from the login form, and the form would be refused.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Guard:
    """Forwards the requests of permitted callers; ``request.state.caller`` is the caller."""

    def __init__(self, app: ASGIApp, *, access: Access, audit: Audit) -> None:
        self._app = app
        self._access = access
        self._audit = audit
        self._refusals = Attempts(burst=20, every=3.0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        answer = _Answer(send)
        try:
            refusal = await self._refusal(request)
            if refusal is not None:
                await refusal(scope, receive, answer)
                return
            # With an app in the scope, starlette's routes raise their errors instead of answering with plain text.
            scope["app"] = self
            seconds = None if scope["path"] == STREAM else REQUEST_SECONDS
            async with asyncio.timeout(seconds):
                await self._app(scope, _Limited(receive), answer)
        except HTTPException as error:
            refused = Refused(error.status_code, _HTTP_ERRORS.get(error.status_code, "refused"))
            await answer.fail(scope, receive, refused)
        except TimeoutError:
            await answer.fail(scope, receive, Refused(503, "the answer takes too long"))
        except Refused as refused:
            await answer.fail(scope, receive, refused)
        except Exception as error:
            # The log gets only the class of the error, because the error's text may contain values of records.
            _log.warning("a request to the dashboard has failed: %s", type(error).__name__)
            _log.debug("details", exc_info=True)
            await answer.fail(scope, receive, Refused(500, "the dashboard has failed to answer"))

    async def _refusal(self, request: Request) -> Response | None:
        if not self._access.is_for_us(request):
            hint = "if it is this server's name, add it to dashboard.allowed_hosts"
            return JsonResponse({"error": "the request names another host", "hint": hint}, 421)
        caller = await self._caller(request)
        if isinstance(caller, Response):
            return caller
        request.state.caller = caller
        path = request.scope["path"]
        is_public = path == "/login" or (request.method == "GET" and (path in PROBES or path.startswith("/static/")))
        if caller is None and not is_public:
            is_page = request.method == "GET" and path == "/"
            return RedirectResponse("/login", 303) if is_page else unauthorized()
        if request.method not in METHODS:
            return JsonResponse({"error": "only GET and POST are allowed"}, 405, {"allow": ", ".join(METHODS)})
        return self._foreign(request, caller)

    async def _caller(self, request: Request) -> Caller | Response | None:
        """Return the caller; None without a login; or the error answer, if the token is wrong."""
        given = request.headers.get("authorization")
        if given is not None:
            return self._bearer(request, given)
        if self._access.is_open:
            return self._access.own_user if await _is_own_user(request) else None
        return self._access.session(request)

    def _bearer(self, request: Request, given: str) -> Caller | Response:
        scheme, _, token = given.partition(" ")
        caller = self._access.bearer(token.strip()) if scheme.lower() == "bearer" else None
        if caller is not None:
            return caller
        address = self._access.address_of(request)
        if (seconds := self._refusals.take(network_of(address))) > 0:
            return too_many(seconds)
        self._audit.refused("a wrong token", address=address)
        return unauthorized()

    def _foreign(self, request: Request, caller: Caller | None) -> Response | None:
        """Refuse a request that another site's page sends with the user's cookie, or from the user's machine."""
        if request.method != "POST":
            site = request.headers.get("sec-fetch-site", "none")
            is_page = request.headers.get("sec-fetch-mode") == "navigate"
            return None if site in ("same-origin", "none") or is_page else forbidden("another site sends this request")
        if caller is not None and caller.csrf is None:
            return None
        if not self._access.is_same_origin(request):
            return forbidden("another site sends this request, or a client without a token")
        if caller is not None and request.scope["path"] != "/login":
            given = request.headers.get(CSRF, "")
            if not hmac.compare_digest(given.encode("utf-8", "replace"), (caller.csrf or "").encode()):
                return forbidden(f"the header {CSRF} is missing or old", "load the page again")
        return None


class JsonResponse(Response):
    """A document as JSON."""

    media_type = "application/json; charset=utf-8"

    def __init__(self, document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(json_line(document).encode(), status_code=status, headers=headers)


async def document_of(request: Request) -> Document:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "the body must be JSON", "Content-Type: application/json")
    return json_object(await request.body())


def unauthorized() -> Response:
    return JsonResponse({"error": "a login is required"}, 401, {"www-authenticate": "Bearer"})


def forbidden(error: str, hint: str | None = None) -> Response:
    return JsonResponse({"error": error, "hint": hint}, 403)


def too_many(seconds: float) -> Response:
    headers = {"retry-after": str(int(seconds) + 1)}
    return JsonResponse({"error": "too many attempts", "hint": f"wait {int(seconds) + 1} s"}, 429, headers)


async def _is_own_user(request: Request) -> bool:
    """Return True if this process's user owns the client's socket; remember it for later requests of the connection."""
    connection: MutableMapping[str, Any] = request.scope.get("state", {}).get("connection", {})
    if "is_own_user" not in connection:
        client, server = request.scope.get("client"), request.scope.get("server")
        connection["is_own_user"] = (
            client is not None and server is not None and await asyncio.to_thread(is_own_user, client, server)
        )
    return bool(connection["is_own_user"])


class _Limited:
    """Receives a request's body; raises Refused if it is too large."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._bytes = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        if self._bytes > MOST_BODY:
            raise Refused(413, f"a request has at most {MOST_BODY:,} bytes")
        return message


class _Answer:
    """Sends an answer with the security headers, and remembers whether the answer has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._has_begun = True
            headers = MutableHeaders(scope=message)
            for name, value in SAFE_HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
            if message["status"] == 413:
                headers["connection"] = "close"
        await self._send(message)

    async def fail(self, scope: Scope, receive: Receive, refused: Refused) -> None:
        """Answer with an error; if another answer has begun, close the connection."""
        if not self._has_begun:
            after = {} if refused.retry_after is None else {"retry-after": str(refused.retry_after)}
            document = {"error": refused.error, "hint": refused.hint}
            await JsonResponse(document, refused.status, after)(scope, receive, self)
        elif abort := scope.get("state", {}).get("connection", {}).get("abort"):
            abort()
