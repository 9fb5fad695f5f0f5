"""The design notes are few and short; each begins with its scope."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
NOTES = {path.name: path.read_text("utf-8") for path in sorted((ROOT / "docs" / "design").rglob("*.md"))}
MOST_NOTES = 14
MOST_WORDS = 16_000
HEAD = re.compile(r"# Design: \S[^\n]*\n\nThis note explains [^#]+\.\n\n## ")


def test_the_design_notes_are_few_and_short() -> None:
    assert 0 < len(NOTES) <= MOST_NOTES
    assert sum(len(text.split()) for text in NOTES.values()) <= MOST_WORDS


def test_a_design_note_begins_with_a_title_and_a_scope() -> None:
    assert [name for name, text in NOTES.items() if not HEAD.match(text)] == []


def test_a_design_note_has_no_heading_twice() -> None:
    for name, text in NOTES.items():
        subjects = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert len(subjects) == len(set(subjects)), name
