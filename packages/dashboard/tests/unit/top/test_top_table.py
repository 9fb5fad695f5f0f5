"""The table of all feeds fits any width, and sorts by any column."""

import pytest
from rich.cells import cell_len

from lakefeed_dashboard.top.screen import TopScreen
from lakefeed_dashboard.top.table import SeenFeed, TrendPoint, age, columns_for, header, row, short, sort

FEEDS = [
    SeenFeed(
        key="a", name="taxi", state="working", rate=1_234_567.0, lag=0, points=(TrendPoint(at=1.0, rate=5.0, lag=None),)
    ),
    SeenFeed(key="b", name="東京の注文" * 5, state="hangs", rate=None, lag=None, last_error="x" * 500),
    SeenFeed(key="c", name="\x1b[2J\u202eevil", state="failed", rate=0.0, lag=12_345_678, batch=10**15),
    SeenFeed(key="d", name="", state="killed", lag=3),
]


@pytest.mark.parametrize("width", [1, 10, 20, 40, 79, 80, 81, 120, 300])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    screen = TopScreen(lambda: FEEDS, clock=lambda: 100.0)
    for height in (1, 2, 5, 24):
        for key in ("", "enter", "escape", "/", "x", "escape"):
            screen.press(key)
            lines = screen.lines(width, height)
            assert len(lines) == height
            assert all(cell_len(line.plain) <= width for line in lines)
            assert all(line.plain.isprintable() for line in lines)


def test_cells_are_aligned_with_their_titles() -> None:
    columns = columns_for(150)
    widths = {cell_len(row(feed, columns, now=100.0).plain) for feed in FEEDS}
    assert widths == {cell_len(header(columns).plain)} == {150}
    assert [column.title for column, _ in columns_for(80)][:3] == ["feed", "state", "rec/s"]


@pytest.mark.parametrize(
    ("key", "is_reversed", "expected"),
    [("l", False, "cdab"), ("l", True, "adcb"), ("t", False, "cdba"), ("n", True, "bacd"), ("r", False, "acbd")],
)
def test_feeds_are_sorted_by_a_column(key: str, is_reversed: bool, expected: str) -> None:
    found = sort(FEEDS, key=key, is_reversed=is_reversed, now=100.0)
    if key == "r":
        assert {feed.key for feed in found[2:]} == {"b", "d"}
        found = found[:2]
        expected = expected[:2]
    assert "".join(feed.key for feed in found) == expected


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "-"), (0, "0"), (999, "999"), (1234, "1.2k"), (99_960, "100k"), (999_700, "1.0M"), (5e9, "5.0G")],
)
def test_a_short_number_has_six_characters_at_most(number: float | None, text: str) -> None:
    assert short(number) == text


def test_an_age_has_six_characters_at_most() -> None:
    assert [age(seconds) for seconds in (None, 0, 59, 61, 3590, 7200, 1e6)] == [
        "-", "0 s", "59 s", "1 min", "1 h", "2 h", "12 d",
    ]  # fmt: skip
