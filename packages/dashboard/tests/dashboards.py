"""Serve dashboards on real sockets for tests."""

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from lakefeed.config.base import validated
from lakefeed.feed.progress import FinishedBatch
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.operations.endpoint import OwnFeed
from lakefeed_dashboard.server import serve
from lakefeed_dashboard.settings import Dashboard
from lakefeed_dashboard.workers import Feeds

VIEWER_TOKEN = "viewer-token-of-the-tests-1234567890"
OPERATOR_TOKEN = "operator-token-of-the-tests-123456789"
PASSWORD = "correct horse battery staple"


def password_hash() -> str:
    """Return a hash of PASSWORD that is quick to check."""
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=1, memory_cost=7168, parallelism=1).hash(PASSWORD)


def monitor_of(feed: str = "hidden-name") -> FeedMonitor:
    """Return the monitor of a feed that has committed a batch."""
    found = FeedMonitor(feed)
    found.begin(sink="iceberg a.b.c", fence=None)
    found.finish(FinishedBatch(batch_id=3, finished_at=time.time(), seconds=1.0, records=5, lag=0))
    return found


def with_login(**settings: Any) -> Dashboard:
    """Return the settings of a dashboard on loopback with users and tokens."""
    hashed = password_hash()
    return validated(
        Dashboard,
        "test",
        port=0,
        users=[
            {"name": "anna", "role": "operator", "password_hash": hashed},
            {"name": "vic", "role": "viewer", "password_hash": hashed},
        ],
        tokens=[
            {"name": "prometheus", "role": "viewer", "token": VIEWER_TOKEN},
            {"name": "robot", "role": "operator", "token": OPERATOR_TOKEN},
        ],
        **settings,
    )


def without_login(**settings: Any) -> Dashboard:
    """Return the settings of a dashboard on loopback without a login."""
    return validated(Dashboard, "test", port=0, **settings)


@contextmanager
def dashboard(feeds: Feeds | FeedMonitor, settings: Dashboard) -> Iterator[str]:
    """Serve a dashboard on a free port; yield its address."""
    shown: Feeds = OwnFeed(feeds) if isinstance(feeds, FeedMonitor) else feeds
    with serve(shown, settings) as served:
        yield served


def address(served: str) -> tuple[str, int]:
    parts = urlsplit(served)
    return parts.hostname or "", parts.port or 0


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def browser(served: str, *, verify: ssl.SSLContext | bool = True) -> Iterator[httpx.Client]:
    """Yield a client that sends origin and cookies as a browser does, without a proxy."""
    headers = {"Origin": served, "Sec-Fetch-Site": "same-origin"}
    with httpx.Client(base_url=served, headers=headers, trust_env=False, timeout=10, verify=verify) as client:
        yield client


def log_in(client: httpx.Client, user: str = "anna", password: str = PASSWORD) -> dict[str, str]:
    """Log in; return the CSRF header that actions need."""
    answer = client.post("/login", json={"user": user, "password": password})
    assert answer.status_code == 200, answer.text
    return {"X-CSRF-Token": client.get("/api/session").json()["csrf"]}
