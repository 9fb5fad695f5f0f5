"""Limit the attempts of a client, and log logins and refusals as events of the feed."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network


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
        """Give a successful attempt back, so that only failed attempts count."""
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
    """Return the address, or the 64-bit network of an IPv6 address, because one client owns such a network."""
    try:
        ip = ip_address(address.split("%")[0])
    except ValueError:
        return address
    if isinstance(ip, IPv6Address):
        return str(ip.ipv4_mapped) if ip.ipv4_mapped else str(ip_network((ip, 64), strict=False))
    return str(ip)


class Audit:
    """The access log; a flood of refusals adds only a few lines.

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
