"""Each fenced block of README and docs is run by a test, or states a reason why no test runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.blocks import (
    LEAST_SHARE,
    PAGES,
    ROOT,
    blocks_in,
    commands_in,
    differences,
    every_block,
    faults,
    printed_in,
    shape,
)
from tests.support.page_reader import Reader, lasts

PAGE = ROOT / "docs" / "run.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_documented_block_is_run_or_has_a_reason_why_not(page: Path) -> None:
    assert faults(page.read_text("utf-8"), page) == []


def test_most_blocks_are_run() -> None:
    blocks = every_block()
    assert len([block for block in blocks if block.is_run]) >= LEAST_SHARE * len(blocks)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```nginx\nlocation /\n```\n", ["nginx: not run, and no reason"]),
        ("```\nx\n```\n", ["no language: not run, and no reason"]),
        ("```text\nx\n```\n", ["text: not run, and no reason"]),
        ("<!-- not run: later -->\n```text\nx\n```\n", ["'later' is no reason"]),
        ("<!-- not run: needs a real cluster -->\n\n```text\nx\n```\n", ["text: not run", "1 marks are not directly"]),
        ("<!-- printed by: lakefeed status -->\n```sh\nx\n```\n", ["only text is printed"]),
        ("<!-- run by: tests/unit/conftest.py -->\n```text\nx\n```\n", ["is not a test that reads this page"]),
        ("- a\n\n  ```toml\n  x = 1\n  ```\n", ["toml: not run, and no reason"]),
        ("```sh\nls\n```\n\n```sh\nls\n", ["3 fences make 1 blocks"]),
        ("<!-- not run: needs a real cluster -->\n```nginx\nx\n```\n", []),
        ("<!-- printed by: lakefeed status -->\n```text\nx\n```\n```yaml\na: b\n```\n", []),
    ],
)
def test_a_block_that_is_not_run_and_has_no_reason_is_found(text: str, found: list[str]) -> None:
    wrong = faults(text, PAGE)
    assert len(wrong) == len(found)
    assert all(part in fault for part, fault in zip(found, wrong, strict=True))


def test_commands_of_a_block_in_a_list_are_read() -> None:
    [block] = blocks_in("1. a\n\n   ```console\n   $ ls -l   # all\n   total 3\n   $ pwd\n   ```\n", PAGE)
    assert (block.line, block.language) == (4, "console")
    assert commands_in(block) == ["ls -l", "pwd"]
    assert printed_in(block) == {"ls -l": "total 3\n"}


def test_a_command_over_two_lines_is_read_as_one() -> None:
    [block] = blocks_in("```sh\n# first\nls \\\n  -l  # all\n```\n", PAGE)
    assert commands_in(block) == ["ls    -l"]


def test_the_comparison_of_output_ignores_figures_times_and_widths() -> None:
    assert shape("taxi: batch 41 · in 499,992 (119,415/s)   ▃▅▇ at 2026-11-20 06:30:00 UTC") == (
        "taxi: batch # · in # (#/s) # at #"
    )
    assert differences("a  12 s\n…\nlast … one", "x\na 7 min\nb\nlast of 3, one") == []
    assert differences("b 1\na 1\n", "a 2\nb 3\n") == ["a 1"]
    assert differences("lag: 3", "lags: 3") == ["lag: 3"]


@pytest.mark.parametrize(
    ("command", "is_endless"),
    [
        ("lakefeed run pipeline.yaml", True),
        ("lakefeed run pipeline.yaml --once", False),
        ("lakefeed run --batch", False),
        ("lakefeed dashboard", True),
        ("lakefeed dashboard hash-password", False),
        ("lakefeed status pipeline.yaml --watch", True),
        ("lakefeed top", False),
        ("lakefeed topics tail trips", True),
        ("lakefeed topics list", False),
    ],
)
def test_a_command_that_runs_until_it_is_stopped_is_recognised(command: str, is_endless: bool) -> None:
    assert lasts(command.split()) is is_endless


def test_the_page_reader_reports_wrong_blocks(tmp_path: Path) -> None:
    text = (
        "```console\n$ echo 12 rows   # all\n7 rows\n$ exit 3   # status 3\n```\n"
        "```sh\necho a\nexit 1\n```\n"
        "<!-- printed by: echo 5 files -->\n```text\n4 files\nnone\n```\n"
        "```python\nassert 1 + 1 == 3\n```\n"
        "<!-- not run: would remove everything -->\n```sh\nexit 9\n```\n"
    )
    reader = Reader(tmp_path, {"PATH": "/usr/bin:/bin"}, {})
    wrong = [fault.partition(": ")[2] for fault in reader.follow(blocks_in(text, PAGE))]
    assert len(wrong) == 3
    assert wrong[0].startswith("AssertionError: status 1: exit 1")
    assert wrong[1].startswith("is not printed: none")
    assert wrong[2] == "AssertionError: "
