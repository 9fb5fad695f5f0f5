"""Take the pictures of docs/dashboard.md in a real browser; ``make screenshots`` writes them to docs/images."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from lakefeed_dashboard.server import serve
from lakefeed_dashboard.settings import Dashboard
from packages.dashboard.tests.shown_feeds import ShownFeeds, calm_feeds
from tests.support.browser import DESKTOP, PHONE, tab

FOLDER = "LAKEFEED_SCREENSHOTS"
MOST_BYTES = 200_000
PICTURES = {
    "dashboard-list": ("/", DESKTOP, False),
    "dashboard-feed": ("/#/feed/taxi", (1160, 1040), False),
    "dashboard-feed-dark": ("/#/feed/taxi", (1160, 1040), True),
    "dashboard-phone": ("/#/feed/taxi", (PHONE[0], 1000), False),
    "dashboard-pipeline": ("/#/feed/taxi/pipeline", (1280, 620), False),
    "dashboard-panels": ("/#/feed/taxi/panels", (1280, 780), False),
    "dashboard-dead-letters": ("/#/feed/taxi/dead-letters", (1280, 720), False),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_the_page_is_taken(browser: Browser, tmp_path: Path, name: str) -> None:
    view, size, dark = PICTURES[name]
    target = Path(os.environ.get(FOLDER, tmp_path)) / f"{name}.png"
    with (
        serve(ShownFeeds(calm_feeds()), Dashboard(port=0)) as served,
        tab(browser, served, size=size, dark=dark) as opened,
    ):
        page = opened.open(view)
        expect(page.locator("#link-text")).to_have_text("live")
        expect(page.get_by_text("Loading …")).to_have_count(0)
        page.wait_for_timeout(6500 if view == "/" else 1300)
        page.screenshot(path=target)
    assert 5_000 < target.stat().st_size < MOST_BYTES
