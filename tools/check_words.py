"""Find vague words, and docstrings that begin with a question word: part of ``make lint``.

Names in code are checked, too. A word in quotes, or before ``:`` or ``=``, is allowed, because programs may read it.
How to write: CONTRIBUTING.md, "Style".
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKED = (".java", ".md", ".py", ".toml", ".yaml", ".yml", "Makefile")
OWN = ("tools/check_words.py", "tests/unit/project/test_check_words.py")
DOCUMENTED = re.compile(r"src/|tests/support/|tools/|packages/[^/]+/src/|bench/src/")
"""The folders whose docstrings are checked; the docstrings of tests may begin with any word."""

INSTEAD = {
    r"go(?:es|ing)?[ _]on": "resume, continue",
    r"ma(?:de|kes|king)[ _]again|(?<!out_)anew": "recreate, rebuild, start over",
    r"told|tells|untold": "report, notify, show, message",
    r"wants|wanted": "require, expect, request",
    r"(?:no|some|any)body": "no one, no server; another client, a user",
}
AROUND = r"(?i)(?<![a-z\"`.=])(?:{})(?![a-z\"`:=])"
WORDS = {re.compile(AROUND.format(words)): instead for words, instead in INSTEAD.items()}
Described = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
OPENING = re.compile(r"(?:What|Whoever|Where|Which|Those|That|Whether|Who)\b")


def words_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number of each vague word, and the word with better ones."""
    for number, line in enumerate(text.splitlines(), start=1):
        yield from ((number, f"{it[0]!r}: {instead}") for word, instead in WORDS.items() for it in word.finditer(line))


def openings(source: str) -> Iterator[tuple[int, str]]:
    """Yield, for each docstring that begins with a question word, its line number and the advice."""
    for node in (each for each in ast.walk(ast.parse(source)) if isinstance(each, Described)):
        if word := OPENING.match(ast.get_docstring(node) or ""):
            yield node.body[0].lineno, f"a docstring begins with {word[0]!r}: begin with a verb, or with a noun"


def main() -> int:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = []
    for name in listed.splitlines():
        if name.endswith(CHECKED) and name not in OWN and (ROOT / name).is_file():
            text = (ROOT / name).read_text(encoding="utf-8")
            faults = [*words_of(text), *(openings(text) if name.endswith(".py") and DOCUMENTED.match(name) else ())]
            found += [f"{name}:{number}: {fault}" for number, fault in faults]
    print("\n".join(found) or "words: none to avoid are used")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
