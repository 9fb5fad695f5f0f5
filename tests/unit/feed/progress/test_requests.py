"""Counts of S3 requests as numbers, without a JVM."""

from __future__ import annotations

import io

from rich.console import Console

from lakefeed.feed.progress.progress import BatchProgress
from lakefeed.feed.progress.requests import S3Requests, location_of
from lakefeed.feed.progress.terminal import ProgressView

BEFORE = "PutObject\tdata\tlake/t\t2\t100\t0\t0\nHeadObject\tother\tlake/elsewhere\t1\t0\t0\t1"
AFTER = (
    "PutObject\tdata\tlake/t\t4\t300\t0\t0\nPutObject\tdata\tlake/t\t1\t10\t0\t0\n"
    "PutObject\toffsets\tlake/c\t1\t5\t0\t1\nHeadObject\tother\tlake/elsewhere\t1\t0\t0\t1"
)


def test_driver_and_executors_are_added_up() -> None:
    requests = S3Requests.parse(AFTER)
    assert (requests.total, requests.bytes_out, requests.bytes_in, requests.errors) == (7, 315, 0, 2)
    assert requests.by_operation == {"HeadObject": 1, "PutObject": 6}
    assert requests.by_key_class == {"data": 5, "offsets": 1, "other": 1}


def test_a_difference_has_only_what_came_in_between() -> None:
    between = S3Requests.parse(AFTER) - S3Requests.parse(BEFORE)
    assert between.as_dict() == {
        "total": 4,
        "bytes_out": 215,
        "bytes_in": 0,
        "errors": 1,
        "calls": {"data": {"PutObject": 3}, "offsets": {"PutObject": 1}},
    }
    assert S3Requests.parse("") == S3Requests()


def test_a_location_is_not_one_whose_name_only_begins_alike() -> None:
    requests = S3Requests.parse("PutObject\tdata\tlake/t\t2\t0\t0\t0\nPutObject\tdata\tlake/t2\t1\t0\t0\t0")
    assert requests.below([location_of("s3a://lake/t/")]).total == 2
    assert requests.below(["lake"]).total == 3


def test_the_line_shows_the_figure_and_a_budget_that_was_passed() -> None:
    out = io.StringIO()
    requests = S3Requests.parse(AFTER)
    with ProgressView("taxi", console=Console(file=out, width=40)) as view:
        view.batch(BatchProgress(0, 10, 10, 1.0, 0, requests, 7))
        view.batch(BatchProgress(1, 10, 10, 1.0, 0, requests, 6))
        view.batch(BatchProgress(2, 10, 10, 1.0, 0, requests))
    ends = [line.rpartition("lag 0 · ")[2] for line in out.getvalue().splitlines()]
    assert ends == ["S3 7", "S3 7, budget 6", "S3 7"]


def test_in_a_terminal_a_passed_budget_stays_to_be_seen() -> None:
    out = io.StringIO()
    with ProgressView("taxi", console=Console(file=out, width=120, force_terminal=True, highlight=False)) as view:
        view.batch(BatchProgress(0, 10, 10, 1.0, 0, S3Requests.parse(AFTER), 6))
    assert "batch 0 made 7 S3 requests, budget 6" in out.getvalue()
