"""Check that each decision record has a title, a status and sections, and that the index agrees."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DECISIONS = ROOT / "docs" / "decisions"
RECORDS = sorted(path for path in DECISIONS.glob("*.md") if path.name[0].isdigit())
TITLE = re.compile(r"# (\d{4}): (\S.*)")
RECORD_LINK = re.compile(r"\[(\d{4})\]\((\d{4})-[^)]+\.md\)")
RELATION = re.compile(r"Supersedes in part: (.+)")
STATUS = re.compile(r"Status: (accepted|deprecated|accepted, superseded in part by .+)")
INDEX_ROW = re.compile(r"\| \[(\d{4})\]\(([^)]+)\) \| (.+) \| ([^|]+) \|")
SECTIONS = ["Context", "Decision", "Consequences", "Rejected"]


@dataclass(frozen=True)
class Record:
    """The parts of a decision record that the index and other records depend on."""

    path: Path
    number: str
    title: str
    status: str
    supersedes_in_part: frozenset[str]


@cache
def read_record(path: Path) -> Record:
    """Read a record, and fail with its name where its head is malformed."""
    lines = path.read_text("utf-8").splitlines()
    title = TITLE.fullmatch(lines[0])
    assert title, f"{path.name}: the first line is not '# NNNN: Title'"
    status = STATUS.fullmatch(lines[2])
    assert status, f"{path.name}: line 3 is not a status"
    head = lines[3 : next(index for index, line in enumerate(lines) if line.startswith("## "))]
    relations = [found[1] for line in head if (found := RELATION.fullmatch(line))]
    return Record(
        path=path,
        number=title[1],
        title=title[2],
        status=status[1],
        supersedes_in_part=frozenset(linked_numbers("".join(relations))),
    )


def linked_numbers(text: str) -> list[str]:
    """List the records that a line links to; the number shown is the number of the file."""
    links = RECORD_LINK.findall(text)
    assert all(shown == file for shown, file in links), text
    return [shown for shown, _ in links]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_a_record_has_a_title_a_status_and_sections_in_order(path: Path) -> None:
    record = read_record(path)
    assert path.name.startswith(f"{record.number}-")
    assert not record.title.endswith((".", "?", ":"))
    sections = re.findall(r"^## (.*)$", path.read_text("utf-8"), re.M)
    assert sections[:2] == SECTIONS[:2]
    assert sections == [name for name in SECTIONS if name in sections]


def test_numbers_are_unique() -> None:
    numbers = [read_record(path).number for path in RECORDS]
    assert len(numbers) == len(set(numbers))


def test_supersession_is_recorded_on_both_sides() -> None:
    records = [read_record(path) for path in RECORDS]
    changed = {(record.number, old) for record in records for old in record.supersedes_in_part}
    part = [record for record in records if "in part" in record.status]
    assert changed == {(new, record.number) for record in part for new in linked_numbers(record.status)}
    assert changed


def test_the_index_lists_each_record_once_with_its_title_and_status() -> None:
    rows = INDEX_ROW.findall((DECISIONS / "README.md").read_text("utf-8"))
    expected = [
        (record.number, record.path.name, record.title, RECORD_LINK.sub(r"\1", record.status))
        for record in (read_record(path) for path in RECORDS)
    ]
    assert sorted(rows) == expected
