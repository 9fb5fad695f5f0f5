"""The buttons, dialogs, roles and login of the dashboard's page work in a real browser; no JVM runs."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher
from playwright.sync_api import Browser, Page, expect

from lakefeed.config.base import validated
from lakefeed_dashboard.server import serve
from lakefeed_dashboard.settings import Dashboard
from packages.dashboard.tests.shown_feeds import ShownFeed, ShownFeeds, shown_feed
from tests.support.browser import Tab, tab

TOKEN = "a-token-of-the-test-0123456789"
API = ("feeds", "session", "stream", *(f"feeds/taxi/{what}" for what in ("progress", "history", "events", "graph")))


def with_users() -> Dashboard:
    """Return the settings of a dashboard with a viewer, an operator and a token."""
    hasher = PasswordHasher(memory_cost=8192, time_cost=1, parallelism=1)
    users = [
        {"name": role, "password_hash": hasher.hash(f"password-of-{role}"), "role": role}
        for role in ("viewer", "operator")
    ]
    tokens = [{"name": "script", "token": TOKEN, "role": "viewer"}]
    return validated(Dashboard, "test", port=0, users=users, tokens=tokens)


@pytest.fixture
def taxi() -> ShownFeed:
    return shown_feed(batches=20)


@pytest.fixture
def open_url(taxi: ShownFeed) -> Iterator[str]:
    """Serve a dashboard on loopback, which requires no login."""
    with serve(ShownFeeds([taxi]), Dashboard(port=0)) as served:
        yield served


@pytest.fixture
def closed_url(taxi: ShownFeed) -> Iterator[str]:
    """Serve a dashboard that requires a login."""
    with serve(ShownFeeds([taxi]), with_users()) as served:
        yield served


def log_in(opened: Tab, user: str) -> Page:
    page = opened.open("/login")
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(f"password-of-{user}")
    page.get_by_role("button", name="Log in").first.click()
    expect(page.locator("#link-text")).to_have_text("live")
    return page


def actions(feed: ShownFeed) -> list[dict[str, Any]]:
    return [dict(event.details) for event in feed.monitor.events.after(0) if event.kind == "action"]


def test_pause_asks_for_a_reason_and_is_logged(browser: Browser, open_url: str, taxi: ShownFeed) -> None:
    with tab(browser, open_url) as opened:
        page = opened.open("/#/feed/taxi")
        page.get_by_role("button", name="Pause").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_label("Reason")).to_be_focused()
        dialog.get_by_label("Reason").fill("the table is repaired")
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("alert")).to_contain_text("pause, reason: the table is repaired")
        page.keyboard.press("Enter")
        expect(dialog).to_have_count(0)
        request = taxi.monitor.control.take()
        assert request is not None
        assert (request.action, request.reason) == ("pause", "the table is repaired")
        taxi.monitor.control.paused(request.pause)
        expect(page.locator("h1 + .badge")).to_have_text("paused")
        expect(page.locator(".note.warn")).to_contain_text("the table is repaired")
        expect(page.get_by_role("button", name="Pause")).to_be_hidden()
        page.get_by_role("button", name="Resume").click()
        dialog.get_by_role("button", name="Resume").click()
        expect(dialog.get_by_role("alert")).to_contain_text("resume")
    assert [details["action"] for details in actions(taxi)] == ["pause", "resume"]


def test_the_dialog_for_changes_sends_new_values_and_refuses_an_empty_form(
    browser: Browser, open_url: str, taxi: ShownFeed
) -> None:
    with tab(browser, open_url) as opened:
        page = opened.open("/#/feed/taxi")
        page.get_by_role("button", name="Change trigger").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Change").click()
        expect(dialog.get_by_role("alert")).to_contain_text("a change needs a new value")
        dialog.get_by_label("Trigger").fill("10 seconds")
        dialog.get_by_label("Most records per batch").fill("5000")
        dialog.get_by_role("button", name="Change").click()
        expect(dialog.get_by_role("alert")).to_contain_text("trigger = 10 seconds")
        # The browser's console logs an error for each 4xx response.
        opened.errors[:] = [error for error in opened.errors if "409" not in error]
    request = taxi.monitor.control.take()
    assert request is not None
    assert request.changes == {"trigger": "10 seconds", "max_records_per_batch": 5000}


def test_a_dialog_keeps_the_focus_and_returns_it_to_the_button(
    browser: Browser, open_url: str, taxi: ShownFeed
) -> None:
    with tab(browser, open_url) as opened:
        page = opened.open("/#/feed/taxi")
        page.get_by_role("button", name="Stop").focus()
        page.keyboard.press("Enter")
        inside = "document.activeElement === document.body || document.activeElement.closest('dialog') !== null"
        for _ in range(8):
            page.keyboard.press("Tab")
            assert page.evaluate(inside)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_role("button", name="Stop")).to_be_focused()
    assert actions(taxi) == []


def test_the_feeds_of_the_list_are_reachable_by_keyboard(browser: Browser, open_url: str) -> None:
    with tab(browser, open_url) as opened:
        page = opened.open()
        expect(page.locator("tr.feed-row")).to_have_count(1)
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        for _ in range(3):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{opened.origin}/#/feed/taxi")
        expect(page.locator("h1")).to_have_text("taxi")


def test_the_page_opens_the_login_after_a_restart_of_the_server(browser: Browser, taxi: ShownFeed) -> None:
    feeds, users = ShownFeeds([taxi]), with_users()
    with serve(feeds, users) as served:
        url = served
    users = users.model_copy(update={"port": int(url.rstrip("/").rpartition(":")[2])})
    with tab(browser, url) as opened:
        with serve(feeds, users):
            page = log_in(opened, "viewer")
        expect(page.locator("#link-text")).to_have_text("connection lost")
        with serve(feeds, users):
            expect(page.get_by_label("Password")).to_be_visible(timeout=30_000)
        opened.errors.clear()  # The console logs an error for each refused connection.


def test_no_page_shows_the_name_of_a_feed_without_a_login(browser: Browser, closed_url: str) -> None:
    with tab(browser, closed_url) as opened:
        page = opened.open("/#/feed/taxi")
        expect(page.get_by_label("Password")).to_be_visible()
        assert "taxi" not in page.content()
        page.get_by_label("User").fill("operator")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Log in").first.click()
        expect(page.get_by_role("alert")).to_contain_text("wrong")
        assert opened.violations() == []
        opened.errors[:] = [error for error in opened.errors if "401" not in error]
    for headers in ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Bearer"}):
        with httpx.Client(base_url=closed_url, headers=headers, trust_env=False) as client:
            for path in API:
                answer = client.get(f"/api/{path}")
                assert (answer.status_code, "taxi" in answer.text) == (401, False), path
    with httpx.Client(base_url=closed_url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False) as client:
        assert client.get("/api/feeds").json()["feeds"][0]["feed"] == "taxi"
