"""The routes of the dashboard: pages, documents, the stream and actions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from lakefeed.operations.endpoint import Refused, event_number, history_range, require_action
from lakefeed_dashboard.access import PROBES, Access, Caller
from lakefeed_dashboard.feeds import DETAILS, Feeds, FeedView
from lakefeed_dashboard.guard import Guard, JsonResponse, document_of
from lakefeed_dashboard.limits import Audit
from lakefeed_dashboard.login import Login
from lakefeed_dashboard.stream import Hub
from lakefeed_dashboard.workers import Workers

STATIC = Path(__file__).parent / "static"


class _Static(StaticFiles):
    """Files of the page. Browsers ask for a newer version at every use, so an upgrade takes effect at once."""

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
        """Yield the messages until the session of the request ends; the page then shows the login."""
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
