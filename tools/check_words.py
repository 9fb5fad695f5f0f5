"""Find words that the glossary of CONTRIBUTING.md replaces, and docstrings that begin with a question word.

Part of ``make lint``. The words are those in the first column of the table below "## Words" in CONTRIBUTING.md, in
backticks. An underscore counts as a space, so names of functions and tests are checked too. The first line of a
docstring is a verb with its object, or a noun for a value: "What the sink has" is neither.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "CONTRIBUTING.md"
CHECKED = (".java", ".md", ".py", ".toml", ".yaml", ".yml", "Makefile")
OWN = ("tools/check_words.py", "tests/unit/project/test_check_words.py")

DOCUMENTED = re.compile(r"src/|tests/support/|tools/|packages/[^/]+/src/|bench/src/")
"""The docstrings of these folders are checked; those of tests state what must hold."""

OPENING = re.compile(r"(?:What|Whoever|Where|Which|Those|That|Whether|Who)\b")

# Values that programs read or that other software defines: they must not change.
STORED = (
    '"goes on"',  # lakefeed plan --output json: kind
    "`goes on`",
    "make anew",  # lakefeed plan --output json: checkpoint.action
    "is_laid_out_anew",  # lakefeed plan --output json: tables
    "feed.checkpoint.told",  # lakefeed plan --output json: checkpoint.told
    "told: str",
    "told: one sentence",
    "told=f",
    "told=message",
    '"untold"',  # lakefeed verify --output json: kind of a finding
    "`untold`",
    '"nobody"',  # a user of the operating system, and a login that does not exist
    "`nobody`",
    "=nobody",
    "nobody-knows-it",
)


def words(glossary: str) -> list[str]:
    """Return the words to avoid, from the text of CONTRIBUTING.md."""
    _, found, rest = glossary.partition("\n## Words\n")
    rows = re.findall(r"^\| (`.+?) \|", rest.partition("\n## ")[0], flags=re.MULTILINE)
    avoided = [word for row in rows for word in re.findall(r"`([^`]+)`", row)]
    if not found or not avoided:
        raise SystemExit('CONTRIBUTING.md has no table of words below "## Words"')
    return avoided


def pattern(avoided: list[str]) -> re.Pattern[str]:
    """Return the expression that finds a whole word or phrase, in prose and in names."""
    phrases = "|".join(re.escape(word).replace(r"\ ", "[ _]") for word in sorted(avoided, key=len, reverse=True))
    return re.compile(rf"(?<![a-z])(?:{phrases})(?![a-z])", re.IGNORECASE)


def uses(text: str, avoided: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the line number and the word of all uses in a text."""
    for number, line in enumerate(text.splitlines(), start=1):
        for stored in STORED:
            line = line.replace(stored, "")
        yield from ((number, match.group()) for match in avoided.finditer(line))


def openings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the first word of docstrings that begin with a question word."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if word := OPENING.match(text):
                yield node.body[0].lineno, word.group()


def prose(path: Path) -> str:
    """Return a file's text; without the glossary's table, which must contain the words."""
    text = path.read_text(encoding="utf-8")
    if path != GLOSSARY:
        return text
    before, heading, rest = text.partition("\n## Words\n")
    table, _, after = rest.partition("\n## ")
    return before + heading + "\n" * table.count("\n") + after


def main() -> int:
    """Print all uses with file and line; return 1 if there are any."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    avoided = pattern(words(GLOSSARY.read_text(encoding="utf-8")))
    found = []
    for name in listed.splitlines():
        path = ROOT / name
        if not name.endswith(CHECKED) or not path.is_file() or name in OWN:
            continue
        for number, word in uses(prose(path), avoided):
            found.append(f"{name}:{number}: {word!r}: see the words in CONTRIBUTING.md")
        if name.endswith(".py") and DOCUMENTED.match(name):
            for number, word in openings(path.read_text(encoding="utf-8")):
                found.append(f"{name}:{number}: a docstring begins with {word!r}: begin with a verb, or with a noun")
    print("\n".join(found) or "words: none to avoid are used")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
