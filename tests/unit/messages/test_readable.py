"""Results in one line of Python, and as a table of a notebook."""

from __future__ import annotations

from lakefeed.feed.run import RunSummary
from lakefeed.feed.s3_requests import S3Requests
from lakefeed.messages.readable import counted


def summary(**more: object) -> RunSummary:
    given = {"batches": 1, "records": 1200, "rows": 1200, "seconds": 2.0, "s3_requests": {}, "requests": S3Requests()}
    return RunSummary(**{**given, **more})  # type: ignore[arg-type]


def test_a_summary_is_one_short_line() -> None:
    assert repr(summary()) == "<RunSummary: 1 batch, 1,200 records, 1,200 rows in 2.0 s>"


def test_a_notebook_shows_text_as_text() -> None:
    shown = summary(paused={"<script>alert(1)</script>": "a\x1b[31m & b"})._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "\x1b" not in shown
    assert "1,200 (600/s)" in shown


def test_one_is_singular() -> None:
    assert [counted(count, "batch", "batches") for count in (0, 1, 2000)] == ["0 batches", "1 batch", "2,000 batches"]
    assert counted(1, "row") == "1 row"
