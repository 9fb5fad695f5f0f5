"""Checks passwords with argon2id, in the same time whether the user exists or not."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Mapping

from lakefeed_dashboard.daemon_threads import DaemonThreads

LONGEST = 1024
AT_ONCE = 2
"""Each check takes 64 MB of memory and a core for a while: more at once would delay the feed."""
MOST_WAITING = 16


class TooBusy(Exception):
    """Too many passwords wait to be checked."""


class Passwords:
    """The password hashes of the users."""

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._hashes = dict(sorted(hashes.items()))
        self._key = secrets.token_bytes(16)
        self._waiting = 0
        self._threads = DaemonThreads(AT_ONCE, name="lakefeed-password")

    async def check(self, user: str, password: str) -> bool:
        """Return whether the user exists and the password is right; raises TooBusy."""
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

        known = self._hashes.get(user)
        # An unknown user is checked against another's hash: hashes may differ in how long they take.
        tried = known if known is not None else self._stand_in(user)
        if tried is None:
            return False
        try:
            PasswordHasher().verify(tried, password)
        except (Argon2Error, InvalidHashError, UnicodeEncodeError):  # The last: half a surrogate pair, from JSON.
            return False
        return known is not None

    def _stand_in(self, user: str) -> str | None:
        if not self._hashes:
            return None
        digest = hmac.digest(self._key, user.encode("utf-8", "replace"), "sha256")
        return list(self._hashes.values())[int.from_bytes(digest[:4]) % len(self._hashes)]


def hash_password(password: str) -> str:
    """Return the argon2id hash of a password, with the parameters of RFC 9106 for little memory."""
    from argon2 import PasswordHasher

    return PasswordHasher().hash(password)
