"""Log users in, by name and password or by a token, and log them out."""

from __future__ import annotations

import html
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from lakefeed.operations.endpoint import Refused
from lakefeed_dashboard.access import Access, Caller
from lakefeed_dashboard.credentials import LONGEST, TooBusy
from lakefeed_dashboard.guard import JsonResponse, document_of, too_many
from lakefeed_dashboard.limits import Attempts, Audit, network_of

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
        # No user has a longer name, and counting attempts by such names would only take memory.
        return [by_address, (self._by_user, user)] if 0 < len(user) <= LONGEST else [by_address]

    def _begin(self, request: Request, response: Response, caller: Caller) -> None:
        # The new login ends the session of the browser's previous login.
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
    """Return the fields of a form or JSON document, and whether it was a form."""
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
