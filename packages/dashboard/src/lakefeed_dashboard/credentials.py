"""Check passwords by argon2id, and manage the sessions of users.

A password check takes as long for an unknown user as for a known one, so that the duration does not reveal which users
exist. Sessions are in this process's memory; the browser has a random secret as a cookie.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lakefeed_dashboard.settings import Role
from lakefeed_dashboard.workers import DaemonThreads

LONGEST = 1024
AT_ONCE = 2
"""The most concurrent password checks; each takes 64 MB and a core, so more checks would delay the feed."""
MOST_WAITING = 16


class TooBusy(Exception):
    """Too many password checks wait."""


class Passwords:
    """The password hashes of the users."""

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._hashes = dict(sorted(hashes.items()))
        self._key = secrets.token_bytes(16)
        self._waiting = 0
        self._threads = DaemonThreads(AT_ONCE, name="lakefeed-password")

    async def check(self, user: str, password: str) -> bool:
        """Return whether the user exists and the password is right; raise TooBusy if too many checks wait."""
        if self._waiting >= MOST_WAITING:
            raise TooBusy
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._verify, user, password)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._threads.shutdown()

    def _verify(self, user: str, password: str) -> bool:
        from argon2 import PasswordHasher
        from argon2.exceptions import Argon2Error, InvalidHashError

        if not self._hashes:
            return False
        known = self._hashes.get(user)
        # Check an unknown user's password against an existing user's hash, because the time of a check depends on the
        # hash. The unknown name chooses the hash, so that all checks of one name take equally long.
        keyed = hmac.digest(self._key, user.encode("utf-8", "replace"), "sha256")
        stand_in = list(self._hashes.values())[int.from_bytes(keyed[:4]) % len(self._hashes)]
        try:
            PasswordHasher().verify(stand_in if known is None else known, password)
        except (Argon2Error, InvalidHashError, UnicodeEncodeError):  # JSON may contain half a surrogate pair.
            return False
        return known is not None


def hash_password(password: str) -> str:
    """Return the argon2id hash of a password, with the low-memory parameters of RFC 9106."""
    from argon2 import PasswordHasher

    return PasswordHasher().hash(password)


MOST = 1000
MOST_OF_A_USER = 20
MOST_DEVICES = 1000


def digest(secret: str) -> bytes:
    """Return the digest of a secret; only digests are stored, so a memory dump reveals no session or token."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


@dataclass(frozen=True, kw_only=True)
class UserSession:
    """A logged-in user; every POST request must contain ``csrf``."""

    user: str
    role: Role
    csrf: str
    ends_at: float


class Sessions:
    """The sessions of a server.

    Args:
        hours: a session ends after this time, even if the user is active.
    """

    def __init__(self, *, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = hours * 3600
        self._clock = clock
        self._sessions: OrderedDict[bytes, UserSession] = OrderedDict()
        self._devices: OrderedDict[bytes, str] = OrderedDict()

    @property
    def seconds(self) -> int:
        return int(self._seconds)

    def open(self, user: str, role: Role) -> str:
        """Begin a session and return its secret; if the user or the server has too many sessions, end the oldest."""
        now = self._clock()
        for ended in [key for key, session in self._sessions.items() if session.ends_at <= now]:
            del self._sessions[ended]
        own = [key for key, session in self._sessions.items() if session.user == user]
        for key in own[: max(0, len(own) - MOST_OF_A_USER + 1)]:
            del self._sessions[key]
        while len(self._sessions) >= MOST:
            self._sessions.popitem(last=False)
        secret = secrets.token_urlsafe(32)
        self._sessions[digest(secret)] = UserSession(
            user=user, role=role, csrf=secrets.token_urlsafe(32), ends_at=self._clock() + self._seconds
        )
        return secret

    def find(self, secret: str) -> UserSession | None:
        key = digest(secret)
        session = self._sessions.get(key)
        if session is not None and session.ends_at <= self._clock():
            del self._sessions[key]
            return None
        return session

    def close(self, secret: str) -> None:
        self._sessions.pop(digest(secret), None)

    def new_device(self, user: str) -> str:
        """Return a secret that identifies the user's browser at the next login."""
        secret = secrets.token_urlsafe(32)
        self._devices[digest(secret)] = user
        while len(self._devices) > MOST_DEVICES:
            self._devices.popitem(last=False)
        return secret

    def is_device_of(self, secret: str, user: str) -> bool:
        """Return True if this user has logged in with this browser before."""
        return self._devices.get(digest(secret)) == user
