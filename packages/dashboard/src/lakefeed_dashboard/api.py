"""The routes of the dashboard: pages, documents, the stream and actions."""

from __future__ import annotations

import html
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from lakefeed.operations.endpoint import Refused, event_number, history_range, require_action
from lakefeed_dashboard.access import PROBES, Access, Attempts, Audit, Caller, network_of
from lakefeed_dashboard.credentials import LONGEST, TooBusy
from lakefeed_dashboard.guard import Guard, JsonResponse, document_of, too_many
from lakefeed_dashboard.stream import Hub
from lakefeed_dashboard.workers import DETAILS, Feeds, FeedView, Workers

STATIC = Path(__file__).parent / "static"


class _Static(StaticFiles):
    """Serves the page's static files. Browsers revalidate them at every use, so an upgrade takes effect at once."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "no-cache"
        return response


class DashboardApp:
    """The routes of one server."""

    def __init__(self, feeds: Feeds, *, access: Access, hub: Hub, workers: Workers, audit: Audit) -> None:
        self._feeds = feeds
        self._access = access
        self._hub = hub
        self._workers = workers
        self._audit = audit

    def app(self) -> ASGIApp:
        feed, login = "/api/feeds/{feed:path}", Login(self._access, self._audit)
        routes = [
            Route("/api/session", self._session),
            Route("/api/feeds", self._list),
            Route("/api/stream", self._stream),
            Route(f"{feed}/progress", self._progress),
            Route(f"{feed}/history", self._history),
            Route(f"{feed}/events", self._events),
            Route(f"{feed}/actions", self._act, methods=["POST"]),
            Route(f"{feed}/{{detail}}", self._detail),
            Route("/metrics", self._metrics),
            Route("/health", self._health),
            *(Route(path, self._probe) for path in PROBES),
            Route("/", self._page),
            Route("/login", login.page),
            Route("/login", login.login, methods=["POST"]),
            Route("/logout", login.logout, methods=["POST"]),
            Mount("/static", _Static(directory=STATIC, check_dir=False)),
        ]
        return Guard(Router(routes), access=self._access, audit=self._audit)

    async def _page(self, request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def _session(self, request: Request) -> Response:
        caller = _caller(request)
        document = {"user": caller.user, "role": caller.role, "csrf": caller.csrf}
        return JsonResponse({**document, "login_required": not self._access.is_open})

    async def _list(self, request: Request) -> Response:
        return JsonResponse({"feeds": await self._workers.read(self._feeds.rows)})

    async def _view(self, request: Request) -> FeedView:
        view = await self._workers.read(self._feeds.find, request.path_params["feed"])
        if view is None:
            raise Refused(404, "there is no such feed", "GET /api/feeds lists them")
        return view

    async def _progress(self, request: Request) -> Response:
        return JsonResponse(await self._workers.read((await self._view(request)).progress))

    async def _history(self, request: Request) -> Response:
        view = await self._view(request)
        return JsonResponse(await self._workers.read(view.history, **history_range(request.query_params)))

    async def _events(self, request: Request) -> Response:
        after = event_number(request.query_params)
        view = await self._view(request)
        return JsonResponse(await self._workers.read(view.events, after=after))

    async def _detail(self, request: Request) -> Response:
        what = request.path_params["detail"]
        if what not in DETAILS:
            raise Refused(404, f"a feed has no page '{what}'", f"known: {', '.join(DETAILS)}")
        view = await self._view(request)
        return JsonResponse(await self._workers.slow(view.detail, what))

    async def _stream(self, request: Request) -> Response:
        feed = request.query_params.get("feed") or None
        after = event_number(request.query_params) if "after" in request.query_params else None
        last = request.headers.get("last-event-id")
        messages = self._hub.stream(feed, last=last, after=after)
        # Wait for the first message before the status line is sent: if the hub refuses the page, the client gets an
        # error answer instead of a broken stream.
        return StreamingResponse(
            self._while_logged_in(request, await anext(messages), messages),
            media_type="text/event-stream",
            headers={"x-accel-buffering": "no", "cache-control": "no-store"},
        )

    async def _while_logged_in(
        self, request: Request, first: bytes, messages: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        """Yield messages until the session of the request ends; the page then shows the login form."""
        has_session = self._access.session(request) is not None and _caller(request).csrf is not None
        yield first
        async for each in messages:
            if has_session and self._access.session(request) is None:
                return
            yield each

    async def _act(self, request: Request) -> Response:
        caller = _caller(request)
        document = await document_of(request)
        require_action(document)
        address = self._access.address_of(request)
        view = await self._view(request)
        if caller.role != "operator":
            self._audit.denied(caller.user, f"{document['action']} {view.name}", address=address)
            raise Refused(403, "a viewer may not do this", "log in as an operator")
        event = await self._workers.slow(view.act, document, by=f"{caller.user} from {address}")
        return JsonResponse({"event": event}, 202)

    async def _metrics(self, request: Request) -> Response:
        found = await self._workers.read(self._feeds.metrics, accept=request.headers.get("accept", ""))
        return Response(found.body, headers={"content-type": found.content_type})

    async def _health(self, request: Request) -> Response:
        is_well, document = await self._workers.read(self._feeds.health)
        return JsonResponse(document, 200 if is_well else 503)

    async def _probe(self, request: Request) -> Response:
        _, document = await self._workers.read(self._feeds.health)
        key = request.scope["path"].rpartition("/")[2]
        is_so = bool(document.get(key))
        return JsonResponse({key: is_so}, 200 if is_so else 503)


def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


FORM = "application/x-www-form-urlencoded"
DEVICE_DAYS = 90


class Login:
    """The routes of login and logout.

    Attempts are limited by address and by user. A browser from which the user has logged in before has a separate
    limit, so an attacker's guesses do not lock the user out of that browser.
    """

    def __init__(self, access: Access, audit: Audit) -> None:
        self._access = access
        self._audit = audit
        self._by_address = Attempts(burst=10, every=6.0)
        self._by_user = Attempts(burst=20, every=15.0)
        self._by_device = Attempts(burst=10, every=10.0)

    async def page(self, request: Request) -> Response:
        return HTMLResponse(_page())

    async def login(self, request: Request) -> Response:
        given, is_form = await _given(request)
        user, password, token = (str(given.get(name, "")) for name in ("user", "password", "token"))
        address = self._access.address_of(request)
        counts = self._counts(request, user, address)
        waits = [attempts.wait(key) for attempts, key in counts]
        if max(waits) > 0:
            return HTMLResponse(_page("Too many attempts. Wait a minute."), 429) if is_form else too_many(max(waits))
        for attempts, key in counts:
            attempts.take(key)
        try:
            caller = self._access.bearer(token) if token else await self._checked(user, password)
        except TooBusy:
            raise Refused(503, "too many logins at once", "try again in some seconds", retry_after=2) from None
        if caller is None:
            known = user if user in self._access.roles else None
            self._audit.refused("a login", address=address, user=known)
            if is_form:
                return HTMLResponse(_page("User, password or token is wrong."), 401)
            return JsonResponse({"error": "user, password or token is wrong"}, 401)
        for attempts, key in counts:
            attempts.give_back(key)
        self._audit.accepted(caller.user, address=address)
        response: Response = RedirectResponse("/", 303) if is_form else JsonResponse({"user": caller.user})
        self._begin(request, response, caller)
        return response

    async def logout(self, request: Request) -> Response:
        if secret := request.cookies.get(self._access.cookie):
            self._access.sessions.close(secret)
            caller: Caller = request.state.caller
            self._audit.left(caller.user, address=self._access.address_of(request))
        response = JsonResponse({"error": None})
        response.delete_cookie(
            self._access.cookie, path="/", secure=self._access.is_tls, httponly=True, samesite="strict"
        )
        return response

    async def _checked(self, user: str, password: str) -> Caller | None:
        if not user or not password or len(password) > LONGEST or len(user) > LONGEST:
            return None
        if not await self._access.passwords.check(user, password):
            return None
        return Caller(user=user, role=self._access.roles[user], csrf=None)

    def _counts(self, request: Request, user: str, address: str) -> list[tuple[Attempts, str]]:
        device = request.cookies.get(self._device)
        if user and device and self._access.sessions.is_device_of(device, user):
            return [(self._by_device, f"{user}\n{device}")]
        by_address = (self._by_address, network_of(address))
        # A name this long belongs to no user; counting attempts for such names would only take memory.
        return [by_address, (self._by_user, user)] if 0 < len(user) <= LONGEST else [by_address]

    def _begin(self, request: Request, response: Response, caller: Caller) -> None:
        # End the session of the browser's previous login.
        if before := request.cookies.get(self._access.cookie):
            self._access.sessions.close(before)
        sessions = self._access.sessions
        self._cookie(response, self._access.cookie, sessions.open(caller.user, caller.role), sessions.seconds)
        if caller.user in self._access.roles:
            self._cookie(response, self._device, sessions.new_device(caller.user), DEVICE_DAYS * 86_400)

    @property
    def _device(self) -> str:
        return f"{self._access.cookie}-device"

    def _cookie(self, response: Response, name: str, value: str, seconds: int) -> None:
        response.set_cookie(
            name, value, max_age=seconds, path="/", secure=self._access.is_tls, httponly=True, samesite="strict"
        )


async def _given(request: Request) -> tuple[dict[str, Any], bool]:
    """Return the fields of a form or of a JSON document, and True if it was a form."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM:
        try:
            fields = parse_qs((await request.body()).decode(), max_num_fields=10)
        except ValueError:
            raise Refused(400, "the form cannot be read") from None
        return {name: values[-1] for name, values in fields.items()}, True
    return await document_of(request), False


def _page(problem: str = "") -> str:
    alert = f'<p role="alert">{html.escape(problem)}</p>' if problem else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>lakefeed: log in</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/css/base.css">
<link rel="stylesheet" href="/static/login.css">
</head>
<body>
<main>
<h1>lakefeed</h1>
{alert}
<form method="post" action="/login">
<label for="user">User</label>
<input id="user" name="user" autocomplete="username" maxlength="64" required autofocus>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" maxlength="1024" required>
<button type="submit">Log in</button>
</form>
<details>
<summary>Log in with a token</summary>
<form method="post" action="/login">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="off" maxlength="1024" required>
<button type="submit">Log in</button>
</form>
</details>
</main>
</body>
</html>
"""
