"""Identify the user who sends a request, by a token or by the session of a login.

A dashboard on loopback without tokens and users requires no login: it accepts the user of this process.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import Request

from lakefeed.operations.endpoint import host_name, is_address
from lakefeed_dashboard.credentials import Passwords, Sessions, UserSession, digest
from lakefeed_dashboard.settings import Dashboard, Role, is_loopback

ESTABLISHED = "01"
ROOT = 0
Address = tuple[str, int]


def is_own_user(client: Address, server: Address, *, folder: Path = Path("/proc/net")) -> bool:
    """Return True if this process's user, or root, owns the client's socket; False if the owner is unknown."""
    return uid_of(client, server, folder=folder) in (ROOT, os.getuid())


def uid_of(client: Address, server: Address, *, folder: Path) -> int | None:
    """Return the owner of the client's socket from the kernel's table of connections; None if the socket is not listed.

    Only established connections count, because the kernel lists a closed socket with the owner root.
    """
    for name in ("tcp", "tcp6"):
        try:
            lines = (folder / name).read_text("ascii").splitlines()[1:]
        except (OSError, ValueError):
            continue
        ends = _encoded(client, name), _encoded(server, name)
        for line in lines:
            columns = line.split()
            if (
                len(columns) > 9
                and (columns[1], columns[2]) == ends
                and columns[3] == ESTABLISHED
                and columns[9] != "0"
            ):
                return int(columns[7])
    return None


def _encoded(address: Address, table: str) -> str:
    """Format an address as the kernel's table does: words of 32 bits in this machine's byte order."""
    ip = ip_address(address[0].split("%")[0])
    if table == "tcp6" and isinstance(ip, IPv4Address):
        ip = IPv6Address(f"::ffff:{ip}")
    elif table == "tcp" and isinstance(ip, IPv6Address):
        ip = ip.ipv4_mapped or IPv4Address(0)
    words = (ip.packed[at : at + 4] for at in range(0, len(ip.packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words) + f":{address[1]:04X}"


LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
PROBES = frozenset({"/health/live", "/health/ready"})
"""Paths without a login, because Kubernetes' probes have no token; the answers contain no names."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The sender of a request.

    Attributes:
        csrf: the text that a POST request must contain; None for a caller with a token, which no browser sends by
            itself.
    """

    user: str
    role: Role
    csrf: str | None


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token for programs; only its digest is stored."""

    name: str
    digest: bytes = field(repr=False)
    role: Role


@dataclass(kw_only=True)
class Access:
    """The access rules of one server.

    Attributes:
        hosts: the names that the Host header may have. Other names are refused, because a site can let its own name
            point at this machine.
        any_address: accept an IP address in the Host header; a page of another site cannot use one.
        is_open: the user of this process needs no login.
        proxied: the client's address is in X-Forwarded-For.
        origin: the origin of the public URL. The origin of the scheme and the Host header is accepted, too.
        is_tls: browsers reach the server by HTTPS.
    """

    tokens: tuple[Token, ...]
    passwords: Passwords
    sessions: Sessions
    roles: dict[str, Role]
    hosts: frozenset[str]
    any_address: bool = False
    is_open: bool = False
    proxied: bool = False
    origin: str | None = None
    is_tls: bool = False
    cookie: str = "lakefeed-session"
    _open_csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def is_for_us(self, request: Request) -> bool:
        name = host_name(request.headers.getlist("host"))
        return name is not None and (name in self.hosts or (self.any_address and is_address(name)))

    def address_of(self, request: Request) -> str:
        own = request.client.host if request.client else ""
        if not self.proxied:
            return own
        last = ",".join(request.headers.getlist("x-forwarded-for")).rsplit(",", 1)[-1].strip()
        return last if is_address(last) else own

    def bearer(self, given: str) -> Caller | None:
        """Return the caller with this token; compare all tokens, so that the duration reveals nothing about a token."""
        found = None
        sent = digest(given)
        for token in self.tokens:
            if hmac.compare_digest(token.digest, sent):
                found = Caller(user=token.name, role=token.role, csrf=None)
        return found

    def session(self, request: Request) -> Caller | None:
        """Return the caller of the session that the request's cookie names."""
        secret = request.cookies.get(self.cookie)
        session: UserSession | None = self.sessions.find(secret) if secret else None
        return None if session is None else Caller(user=session.user, role=session.role, csrf=session.csrf)

    @property
    def own_user(self) -> Caller:
        """The user of this process, who needs no login."""
        return Caller(user="local user", role="operator", csrf=self._open_csrf)

    def is_same_origin(self, request: Request) -> bool:
        """Return True if the headers that browsers set show that one of the dashboard's own pages sends the request."""
        site = request.headers.get("sec-fetch-site")
        if site is not None and site not in ("same-origin", "none"):
            return False
        origin = request.headers.get("origin")
        if origin is None:
            return site is not None
        own = {self.origin, f"{'https' if self.is_tls else 'http'}://{request.headers.get('host', '')}"}
        return origin in own

    def close(self) -> None:
        self.passwords.close()


def dashboard_access(config: Dashboard, *, port: int) -> Access:
    """Return the access rules of a dashboard on this port."""
    public = urlsplit(config.public_url) if config.public_url else None
    local = is_loopback(config.host)
    names: Iterable[str | None] = (
        *(LOOPBACK_NAMES if local else ()),
        config.host,
        None if local else socket.gethostname(),
        public.hostname if public else None,
        *config.allowed_hosts,
    )
    is_tls = config.tls is not None or (public is not None and public.scheme == "https")
    return Access(
        tokens=tuple(
            Token(name=token.name, digest=digest(token.token.get_secret_value()), role=token.role)
            for token in config.tokens
        ),
        passwords=Passwords({user.name: user.password_hash.get_secret_value() for user in config.users}),
        sessions=Sessions(hours=config.session_hours),
        roles={user.name: user.role for user in config.users},
        hosts=frozenset(name.lower().strip("[]").rstrip(".") for name in names if name),
        any_address=not local,
        is_open=local and not config.has_login,
        proxied=config.behind_proxy,
        origin=f"{public.scheme}://{public.netloc}" if public else None,
        is_tls=is_tls,
        # Browsers send a cookie to all ports of a host, so each dashboard of a host needs a different cookie name.
        cookie=f"{'__Host-' if is_tls else ''}lakefeed-{port}",
    )


class Attempts:
    """A token bucket per key.

    Args:
        burst: how many attempts are allowed at once.
        every: seconds until one further attempt is allowed.
        most: how many keys are remembered; the least recently used key is forgotten first.
    """

    def __init__(
        self, *, burst: int, every: float, most: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst = burst
        self._every = every
        self._most = most
        self._clock = clock
        self._used: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, key: str) -> float:
        """Return the seconds until the next attempt is allowed."""
        return max(0.0, (self._level(key) + 1 - self._burst) * self._every)

    def take(self, key: str) -> float:
        """Count an attempt and return 0; if no attempt is allowed now, return the seconds until one is allowed."""
        seconds = self.wait(key)
        if seconds > 0:
            return seconds
        self._set(key, self._level(key) + 1)
        return 0.0

    def give_back(self, key: str) -> None:
        """Take back an attempt that succeeded, so that only failed attempts count."""
        self._set(key, max(0.0, self._level(key) - 1))

    def _level(self, key: str) -> float:
        level, at = self._used.get(key, (0.0, 0.0))
        return max(0.0, level - (self._clock() - at) / self._every)

    def _set(self, key: str, level: float) -> None:
        self._used[key] = level, self._clock()
        self._used.move_to_end(key)
        while len(self._used) > self._most:
            self._used.popitem(last=False)


def network_of(address: str) -> str:
    """Return the address; for IPv6 its 64-bit network, because one client usually owns the whole network."""
    try:
        ip = ip_address(address.split("%")[0])
    except ValueError:
        return address
    if isinstance(ip, IPv6Address):
        return str(ip.ipv4_mapped) if ip.ipv4_mapped else str(ip_network((ip, 64), strict=False))
    return str(ip)


class Audit:
    """The access log. Many refusals in a short time add only a few lines.

    Args:
        note: writes a line; called with the message, and details by name.
    """

    def __init__(self, note: Callable[..., None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._note = note
        self._refusals = Attempts(burst=30, every=20.0, clock=clock)
        self._omitted = 0

    def accepted(self, user: str, *, address: str) -> None:
        """Log a login."""
        self._note(f"{user} has logged in from {address}", user=user, address=address, outcome="login")

    def left(self, user: str, *, address: str) -> None:
        """Log a logout."""
        self._note(f"{user} has logged out from {address}", user=user, address=address, outcome="logout")

    def refused(self, why: str, *, address: str, user: str | None = None) -> None:
        """Log a refused login; callers omit an unknown user's name, because it may be a mistyped password."""
        if self._refusals.take("") > 0:
            self._omitted += 1
            return
        more = f", after {self._omitted:,} more" if self._omitted else ""
        self._omitted = 0
        who = f" for {user}" if user else ""
        self._note(f"refused {why}{who} from {address}{more}", user=user, address=address, outcome="refused")

    def denied(self, user: str, action: str, *, address: str) -> None:
        """Log an action that the user may not do."""
        if self._refusals.take("") > 0:
            self._omitted += 1
            return
        self._note(
            f"{user} may not {action}: refused from {address}",
            user=user,
            address=address,
            action=action,
            outcome="refused",
        )
