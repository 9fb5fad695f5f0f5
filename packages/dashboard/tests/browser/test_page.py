"""The dashboard's page in a real browser shows monitors that the tests fill; no JVM runs."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from lakefeed_dashboard.server import serve
from lakefeed_dashboard.settings import Dashboard
from packages.dashboard.tests.shown_feeds import PLACES, ShownFeed, ShownFeeds, fifty_feeds, shown_feed
from tests.support.browser import DESKTOP, PHONE, tab

PARTS = ("", "/lag", "/dead-letters", "/pipeline", "/table", "/schema", "/requests", "/panels", "/events")
VIEWS = ("/", *(f"/#/feed/taxi{part}" for part in PARTS))
CUT_OFF = """tables => tables.filter(table => {
    const place = table.closest(".scrolls") ?? table;
    place.scrollLeft = place.scrollWidth;
    const isCut = place.scrollWidth > place.clientWidth && getComputedStyle(place).overflowX !== "auto";
    return isCut || table.getBoundingClientRect().right > innerWidth;
}).map(table => table.textContent.slice(0, 60))"""
"""Returns the tables whose right columns a user cannot reach by scrolling the table."""
RATES = "section:has(h2:text-is('Input and processing rate'))"


@pytest.fixture
def taxi() -> ShownFeed:
    return shown_feed()


@contextmanager
def at(*feeds: ShownFeed) -> Iterator[str]:
    """Serve the feeds on loopback, which requires no login; yield the address."""
    with serve(ShownFeeds(list(feeds)), Dashboard(port=0)) as served:
        yield served.rstrip("/")


@pytest.fixture
def url(taxi: ShownFeed) -> Iterator[str]:
    with at(taxi) as url:
        yield url


def is_shown(page: Page) -> None:
    """Wait until the view shows its data."""
    expect(page.locator("#link-text")).to_have_text("live")
    expect(page.locator("h1")).to_be_visible()
    expect(page.get_by_text("Loading …")).to_have_count(0)


def test_charts_are_redrawn_while_batches_arrive(browser: Browser, url: str, taxi: ShownFeed) -> None:
    with tab(browser, url) as opened:
        page = opened.open("/#/feed/taxi")
        chart = page.locator(RATES)
        expect(chart).to_have_attribute("data-points", re.compile(r"1[67]\d"))
        is_shown(page)
        page.wait_for_timeout(1200)
        picture = "canvas => canvas.toDataURL()"
        points, before = int(chart.get_attribute("data-points") or 0), chart.locator("canvas").evaluate(picture)
        summary = chart.locator(".summary").inner_text()
        batch = taxi.add_batch(dead_letters=3)
        expect(chart).not_to_have_attribute("data-points", str(points))
        assert chart.locator("canvas").evaluate(picture) != before
        assert chart.locator(".summary").inner_text() != summary
        expect(page.get_by_role("group", name="Newest batches").locator("tbody tr").first).to_contain_text(
            str(batch.batch_id)
        )
        expect(page.locator("[data-tile='Dead letters']")).to_contain_text("in this run")
        page.get_by_text("Values as a table").first.click()
        expect(chart.locator("tbody tr")).to_have_count(30)


def test_the_list_updates_rates_and_filters_feeds(browser: Browser, url: str, taxi: ShownFeed) -> None:
    with tab(browser, url) as opened:
        page = opened.open()
        row = page.locator("tr.feed-row")
        expect(row).to_contain_text("taxi")
        before = row.locator(".cell-rate .value").inner_text()
        taxi.add_batch()
        expect(row.locator(".cell-rate .value")).not_to_have_text(before)
        page.get_by_label("Filter").fill("orders")
        expect(row).to_be_hidden()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_view_violates_accessibility_rules_or_scrolls_sideways(
    browser: Browser, url: str, *, size: tuple[int, int], dark: bool
) -> None:
    with tab(browser, url, size=size, dark=dark) as opened:
        for view in VIEWS:
            page = opened.open(view)
            is_shown(page)
            assert opened.violations() == [], view
            assert not opened.scrolls_sideways(), view
            assert page.locator("table:visible").evaluate_all(CUT_OFF) == [], view
        page.get_by_role("button", name="Stop").click()
        assert opened.violations() == []
        assert not opened.scrolls_sideways()


def test_a_dead_letter_can_be_opened_and_copied(browser: Browser, url: str) -> None:
    with tab(browser, url, permissions=["clipboard-read", "clipboard-write"]) as opened:
        page = opened.open("/#/feed/taxi/dead-letters")
        expect(page.get_by_role("heading", name="5 such as 17 is above 12")).to_be_visible()
        letter = page.locator("tr", has_text="18 is above 12")
        headings = page.locator("table", has=letter).locator("thead th")
        expect(headings).to_have_text(["Record", "Key", "Value", re.compile("Time"), "Reason"])
        whole = letter.locator("details > .foreign")
        expect(whole).to_be_hidden()
        letter.locator("summary").click()
        expect(whole).to_contain_text('"column_99": 99}')
        letter.get_by_role("button", name="Copy this value").click()
        expect(page.locator("#announcer")).to_have_text("Copied.")
        copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
        assert copied == {f"column_{number}": number for number in range(100)}


@pytest.mark.parametrize("size", [DESKTOP, (390, 800)], ids=["desktop", "phone"])
def test_the_graph_is_not_scaled_and_bars_fill_the_table(browser: Browser, url: str, size: tuple[int, int]) -> None:
    with tab(browser, url, size=size) as opened:
        page = opened.open("/#/feed/taxi/pipeline")
        scale = "graph => graph.getBoundingClientRect().width / graph.viewBox.baseVal.width"
        assert page.locator("svg.graph").evaluate(scale) == pytest.approx(1, abs=0.02)
        page = opened.open("/#/feed/taxi/panels")
        share = "bar => bar.getBoundingClientRect().width / bar.closest('table').getBoundingClientRect().width"
        assert page.locator(".bar").first.evaluate(share) > 0.4
        page = opened.open("/")
        last = page.locator("tr.feed-row:last-child > *")
        expect(last.first).to_be_visible()
        rules = "cells => new Set(cells.map(cell => getComputedStyle(cell).borderBottomWidth)).size"
        assert last.evaluate_all(rules) == 1


def test_hostile_values_are_shown_as_text(browser: Browser, url: str) -> None:
    with tab(browser, url) as opened:
        for part in ("/dead-letters", "/pipeline", "/schema", "/panels", ""):
            page = opened.open(f"/#/feed/taxi{part}")
            is_shown(page)
            text = page.locator("main").inner_text()
            if part in ("/dead-letters", "/schema", "/panels"):
                assert "<script>document.title" in text, part
            assert page.locator("main img, main script").count() == 0
            assert "taken over" not in page.title()
            # The page escapes control characters and marks of text direction.
            assert not re.search("[\u202a-\u202e\u0000\u001b]", text)
            assert len(text) < 20_000
            if part == "/panels":
                # The map leaves out a place without coordinates, and does not draw it at 0° N, 0° E.
                expect(page.locator("svg.map circle")).to_have_count(len(PLACES))
        opened.open("/#/feed/taxi/dead-letters")
        expect(page.get_by_text("(1.05 MB in all)")).to_be_visible()
        expect(page.locator("bdi", has_text="עברית")).to_have_attribute("dir", "auto")


def test_a_feed_of_any_name_can_be_opened(browser: Browser) -> None:
    name = "a/b <script>alert(1)</script> %2F?#"
    with at(shown_feed(name, batches=3)) as url, tab(browser, url) as opened:
        page = opened.open()
        page.locator("tr.feed-row a").click()
        expect(page.locator("h1")).to_have_text(name)
        expect(page.locator(RATES)).to_have_attribute("data-points", "3")


def test_a_feed_of_a_thousand_partitions_does_not_freeze_the_page(browser: Browser) -> None:
    with at(shown_feed(batches=2, partitions=1000)) as url, tab(browser, url) as opened:
        page = opened.open("/#/feed/taxi/lag")
        expect(page.get_by_text("975 more partitions")).to_be_visible()
        assert page.locator("tbody tr").count() == 26
        longest = page.evaluate(
            """() => new Promise(done => { let last = performance.now(), most = 0, left = 120;
            const frame = now => { most = Math.max(most, now - last); last = now;
            left-- ? requestAnimationFrame(frame) : done(most) }; requestAnimationFrame(frame) })"""
        )
        assert longest < 500
        page.get_by_role("button", name="Show more").click()
        expect(page.get_by_text("875 more partitions")).to_be_visible()


def test_fifty_feeds_are_answered_within_200_milliseconds(browser: Browser) -> None:
    with at(*fifty_feeds()) as url:
        with httpx.Client(base_url=url, trust_env=False) as client:
            seconds = {path: median(_seconds(client, path) for _ in range(9)) for path in ("/", "/api/feeds")}
        assert max(seconds.values()) < 0.2, seconds
        with tab(browser, url) as opened:
            page = opened.open()
            expect(page.locator("tr.feed-row")).to_have_count(50)
            is_shown(page)
            rendered = float(page.locator("table.feeds").get_attribute("data-render-ms") or 1e9)
            assert rendered < 200
            expect(page.locator("#summary")).to_contain_text("50 feeds")
            # The feeds that need attention are at the top.
            expect(page.locator("tr.feed-row").first).to_contain_text("hangs")
            expect(page.get_by_text("Paused by anna: the table is repaired")).to_be_visible()
    print(f"50 feeds: {seconds}, rendered in {rendered:.1f} ms")


def _seconds(client: httpx.Client, path: str) -> float:
    began = time.perf_counter()
    assert client.get(path).status_code == 200
    return time.perf_counter() - began


def test_the_page_shows_a_lost_connection_until_it_reconnects(browser: Browser, taxi: ShownFeed) -> None:
    feeds = ShownFeeds([taxi])
    with serve(feeds, Dashboard(port=0)) as served:
        url = served
        port = int(url.rstrip("/").rpartition(":")[2])
    with tab(browser, url) as opened:
        with serve(feeds, Dashboard(port=port)):
            page = opened.open("/#/feed/taxi")
            is_shown(page)
            expect(page.locator("#banner")).to_be_hidden()
        expect(page.locator("#banner")).to_contain_text("Connection lost since")
        expect(page.locator("#link-text")).to_have_text("connection lost")
        assert opened.violations() == []
        taxi.add_batch()
        with serve(feeds, Dashboard(port=port)):
            expect(page.locator("#banner")).to_be_hidden(timeout=30_000)
            expect(page.locator("#announcer")).to_have_text("The connection is back.")
            # The page shows batches that ended while it was disconnected.
            rows = page.get_by_role("group", name="Newest batches").locator("tbody tr")
            expect(rows.first).to_contain_text("170")
        # The browser's console logs an error for each refused connection.
        page.close()
        opened.errors[:] = [error for error in opened.errors if "net::ERR" not in error]


def test_the_page_retries_a_request_that_a_busy_server_has_refused(
    browser: Browser, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tab(browser, url) as opened:
        monkeypatch.setattr("lakefeed_dashboard.workers.MOST_WAITING", 0)
        page = opened.open("/#/feed/taxi")
        with page.expect_response(lambda again: again.status == 503):
            pass
        monkeypatch.undo()
        is_shown(page)
        expect(page.get_by_text("too many requests wait")).to_have_count(0)
        opened.errors[:] = [error for error in opened.errors if "503" not in error]


def test_the_page_shows_figures_if_the_chart_library_does_not_load(browser: Browser, url: str) -> None:
    """For example, uPlot does not start in a browser without a language."""
    with tab(browser, url) as opened:
        opened.page.route("**/uPlot.iife.min.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
        page = opened.open("/#/feed/taxi")
        expect(page.locator(RATES)).to_contain_text("This browser cannot draw the chart")
        expect(page.locator(f"{RATES} .summary")).to_contain_text("input")


def test_theme_and_time_zone_survive_a_reload(browser: Browser, url: str) -> None:
    with tab(browser, url) as opened:
        page = opened.open("/#/feed/taxi/events")
        is_shown(page)
        page.get_by_role("button", name="UTC").click()
        expect(page.get_by_text("times in Europe/Berlin")).to_be_visible()
        for name in ("light", "dark"):
            page.get_by_role("button", name=re.compile("Theme")).click()
            expect(page.locator("html")).to_have_attribute("data-theme", name)
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        expect(page.get_by_role("button", name="Local time")).to_be_visible()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 22, 27)"


def test_several_batches_within_a_second_are_all_shown(browser: Browser, url: str, taxi: ShownFeed) -> None:
    with tab(browser, url) as opened:
        page = opened.open("/#/feed/taxi")
        is_shown(page)
        page.wait_for_timeout(1200)
        first = taxi.add_batch().batch_id
        for _ in range(4):
            taxi.add_batch()
        rows = page.get_by_role("group", name="Newest batches").locator("tbody tr")
        expect(rows.first).to_contain_text(str(first + 4))
        shown = [int(row.split()[0]) for row in rows.all_inner_texts()[:5]]
        assert shown == list(range(first + 4, first - 1, -1))
