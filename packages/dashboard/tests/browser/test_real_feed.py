"""The dashboard of a real feed in a real browser: Kafka, Spark, S3, and ``lakefeed run`` with its dashboard."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import Tab, tab
from tests.support.cli import Running
from tests.support.feed import Feed

ROLES = ("viewer", "operator")
RATES = "section:has(h2:text-is('Input and processing rate'))"
HOSTILE = b"<script>document.title = 'taken over'</script>\x1b[2J\xe2\x80\xae"


def records(count: int, *, first: int) -> list[bytes]:
    return [json.dumps({"id": number}).encode() for number in range(first, first + count)]


@pytest.fixture
def url(feed: Feed, tmp_path: Path) -> Iterator[tuple[str, Running]]:
    """Run a feed whose dashboard requires a login; yield the address."""
    feed.create_topic(partitions=2)
    hasher = PasswordHasher(memory_cost=8192, time_cost=1, parallelism=1)
    hashes = {f"HASH_OF_{role.upper()}": hasher.hash(f"password-of-{role}") for role in ROLES}
    users = [{"name": role, "password_hash": f"${{HASH_OF_{role.upper()}}}", "role": role} for role in ROLES]
    path = feed.write_file(
        decode={"json": {"schema_ddl": "id BIGINT"}, "metadata": ["topic", "partition", "offset"]},
        dead_letters={"table": f"lake.{feed.name}.letters"},
        dashboard={"port": 0, "users": users},
    )
    environment = {**feed.environment, **hashes, "LAKEFEED_HOME": str(tmp_path / "home")}
    running = Running(["run", path], environment, tmp_path / "log")
    try:
        running.wait_until_it_says("the dashboard is at http")
        found = re.search(r"the dashboard is at (http://[\w.:]+)", running.said())
        assert found is not None
        yield found[1], running
    finally:
        if running.process.poll() is None:
            running.kill()


def log_in(opened: Tab, user: str, feed: Feed) -> Page:
    page = opened.open("/login")
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(f"password-of-{user}")
    page.get_by_role("button", name="Log in").first.click()
    page.get_by_role("link", name=feed.name).click()
    expect(page.locator("h1")).to_have_text(feed.name)
    return page


def answer(page: Page, name: str, button: str, reason: str = "") -> None:
    """Press a button of the feed, and confirm the dialog that opens."""
    page.get_by_role("button", name=name, exact=True).click()
    dialog = page.get_by_role("dialog")
    if reason:
        dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("operator")
    dialog.get_by_role("button", name="Close").click()


def test_users_watch_and_an_operator_controls_a_real_feed_in_a_browser(
    browser: Browser, feed: Feed, url: tuple[str, Running]
) -> None:
    address, running = url
    with tab(browser, address) as operator, tab(browser, address) as viewer:
        page, other = log_in(operator, "operator", feed), log_in(viewer, "viewer", feed)
        page.set_default_timeout(90_000)
        expect.set_options(timeout=90_000)
        total = page.locator("[data-tile='Records in this run'] dd").first
        badge, chart = page.locator("h1 + .badge"), page.locator(RATES)
        expect(badge, running.said()).not_to_have_text("starting", timeout=240_000)

        # The charts change while records arrive.
        feed.send([*records(300, first=0), HOSTILE])
        expect(total).to_have_text("301")
        expect(chart).to_have_attribute("data-points", re.compile("[1-9]"))
        points = str(chart.get_attribute("data-points"))
        picture = chart.locator("canvas").evaluate("canvas => canvas.toDataURL()")
        feed.send(records(200, first=300))
        expect(total).to_have_text("501")
        expect(chart).not_to_have_attribute("data-points", points)
        assert chart.locator("canvas").evaluate("canvas => canvas.toDataURL()") != picture

        # Each part shows the feed's real data.
        part = f"{address}/#/feed/{feed.name}"
        for name, text in {
            "dead-letters": "<script>document.title",
            "table": "append",
            "schema": "in force",
            "pipeline": feed.topic,
            "lag": f"{feed.topic}-1",
            "requests": "Requests per hour",
            "events": "started into",
        }.items():
            page.goto(f"{part}/{name}")
            expect(page.locator("main")).to_contain_text(text)
            assert operator.violations() == [], name
        page.goto(part)

        # While the feed is paused, no records land, and all users see the pause.
        answer(page, "Pause", "Pause", "the table is repaired")
        expect(badge).to_have_text("paused")
        expect(other.locator(".note.warn")).to_contain_text("the table is repaired")
        feed.send(records(100, first=500))
        page.wait_for_timeout(3000)
        assert total.inner_text() == "501"
        answer(page, "Resume", "Resume")
        expect(total).to_have_text("601")

        # A viewer has no buttons, and the server refuses the same request if the viewer's page sends it by a script.
        assert other.locator("[data-action]").count() == 0
        status = other.evaluate(
            """async (feed) => {
                const {csrf} = await (await fetch('/api/session')).json();
                const headers = {'Content-Type': 'application/json', 'X-CSRF-Token': csrf};
                const body = JSON.stringify({action: 'stop'});
                return (await fetch(`/api/feeds/${feed}/actions`, {method: 'POST', headers, body})).status }""",
            feed.name,
        )
        assert status == 403
        assert running.process.poll() is None

        page.goto(f"{part}/events")
        log = page.locator("main")
        for text in ("paused by operator", "resumed by operator", "the table is repaired"):
            expect(log).to_contain_text(text)
        answer(page, "Stop", "Stop the feed", "maintenance")
        assert running.process.wait(90) == 0
        for opened in (operator, viewer):
            # The page tries to reconnect, and the console logs each attempt.
            opened.page.close()
            opened.errors[:] = [error for error in opened.errors if "net::ERR" not in error and "403" not in error]
    assert len(feed.rows()) == 600
    assert all(f"password-of-{role}" not in running.said() for role in ROLES)
