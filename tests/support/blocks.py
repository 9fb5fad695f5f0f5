"""Find the fenced blocks of README and docs, and the test of each block.

A test runs the block, or a comment in the line before the block, which the page does not show, says why none runs it:

<!-- not run: needs a Kubernetes cluster -->

A block of output names the command that prints it; a test compares the block with the command's current output. A block
that has its own test, which reads the block from the page and runs it, names this test:

    <!-- printed by: lakefeed offsets show pipeline.yaml -->
    <!-- run by: tests/integration/test_plan.py -->
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
)
SHELL = ("sh", "console")
RUN = {
    "yaml": "tests/unit/project/test_documented_code.py loads it as a pipeline file, or as a part of one",
    **dict.fromkeys(
        ("python", *SHELL, "sql"), "tests/integration/test_documents.py runs it on real servers, page by page"
    ),
}
"""The languages whose blocks run, and the tests that run them."""
GENERATED = "<!-- Made by tools/generate_docs.py"
LEAST_SHARE = 0.6
"""The least share of blocks that must run instead of being excused."""

LEAST_WORDS = 3
"""The least number of words of a reason."""

_MARK = re.compile(r" *<!-- (?P<kind>not run|printed by|run by): (?P<text>.+?) -->\n")
_FENCE = re.compile(
    r"(?P<mark> *<!-- .+? -->\n)?^(?P<indent> *)(?P<fence>```+|~~~+)(?P<language>[^\n`]*)\n"
    r"(?P<text>.*?)^(?P=indent)(?P=fence) *$",
    re.S | re.M,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        page: the page's file.
        line: the number of the block's first line in the file.
        language: the word behind the opening fence.
        text: the lines within the fence, without the fence's indentation.
        reason: why no test runs the block; None if a test runs it.
        command: the command that prints the block.
        test: the file of the test that runs the block.
    """

    page: Path
    line: int
    language: str
    text: str
    reason: str | None = None
    command: str | None = None
    test: str | None = None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_run(self) -> bool:
        """True if a test runs the block, or compares it with the output of a command."""
        return self.reason is None and (self.language in RUN or self.command is not None or self.test is not None)


def blocks_in(text: str, page: Path) -> Iterator[Block]:
    """Yield the blocks of a page's text."""
    for match in _FENCE.finditer(text):
        mark = _MARK.fullmatch(match["mark"] or "")
        kind, said = (mark["kind"], mark["text"]) if mark else (None, None)
        yield Block(
            page=page,
            line=text[: match.start("fence")].count("\n") + 2,
            language=match["language"].strip(),
            text=re.sub(rf"^{match['indent']}", "", match["text"], flags=re.M),
            reason=said if kind == "not run" else None,
            command=said if kind == "printed by" else None,
            test=said if kind == "run by" else None,
        )


@cache
def blocks_of(page: Path) -> tuple[Block, ...]:
    """Return the blocks of a page; none for a page that a tool generates."""
    text = page.read_text("utf-8")
    return () if text.startswith(GENERATED) else tuple(blocks_in(text, page))


def every_block() -> list[Block]:
    """Return the blocks of all pages."""
    return [block for page in PAGES for block in blocks_of(page)]


def faults(text: str, page: Path) -> list[str]:
    """Return faults of a page: a block that is neither run nor excused, or a comment that belongs to no block."""
    if text.startswith(GENERATED):
        return []
    blocks = list(blocks_in(text, page))
    wrong = [f"{block}: {fault}" for block in blocks for fault in _faults_of(block)]
    marks = len(_MARK.findall(text)) - sum(1 for block in blocks if block.reason or block.command or block.test)
    if marks:
        wrong.append(f"{page.name}: {marks} marks are not directly before a block")
    fences = len(re.findall(r"^ *(?:```|~~~)", text, re.M))
    if fences != 2 * len(blocks):
        wrong.append(f"{page.name}: {fences} fences make {len(blocks)} blocks")
    return wrong


def _faults_of(block: Block) -> Iterator[str]:
    if block.reason is None and not block.is_run:
        yield f"{block.language or 'no language'}: not run, and no reason"
    if block.reason is not None and len(block.reason.split()) < LEAST_WORDS:
        yield f"'{block.reason}' is no reason"
    if block.command is not None and block.language != "text":
        yield "only text is printed by a command"
    if block.test is not None:
        test = ROOT / block.test
        if not test.is_file() or block.page.name not in test.read_text("utf-8"):
            yield f"{block.test} is not a test that reads this page"


def commands_in(block: Block) -> list[str]:
    """Return the commands of a shell block, without comments and without output."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    stripped = (re.sub(r"\s+#\s.*", "", line).strip() for line in lines)
    return [line for line in stripped if line and not line.startswith("#")]


def expected_statuses(block: Block) -> dict[str, int]:
    """Return the commands of a block whose comment names an expected exit status, with this status."""
    found = re.findall(r"^(?:\$ )?(.+?)\s+#.*\bstatus (\d+)", block.text, re.M)
    return {command: int(status) for command, status in found}


def printed_in(block: Block) -> dict[str, str]:
    """Return the output that a console block shows below each command."""
    found: dict[str, str] = {}
    command = None
    for line in block.text.splitlines(keepends=True):
        if line.startswith("$ "):
            command = re.sub(r"\s+#\s.*", "", line.removeprefix("$ ")).strip()
            found[command] = ""
        elif command is not None:
            found[command] += line
    return {command: text for command, text in found.items() if text.strip()}


_FIGURES = re.compile(
    r"[-+]?\d[\d,.]*(?: ?(?:[kM]?B|[kMG]|MiB|KiB|ms|s|min|h|d)(?:/s)?\b)?|[▁▂▃▄▅▆▇█]+|[━─]{3,}|\b[0-9a-f]{8,}\b"
)


def shape(line: str) -> str:
    """Return a line without figures, times, ids and column widths, which differ between runs."""
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z| UTC)?", "#", line)
    text = re.sub(r"\b\d{8}T\d{6}Z-[0-9a-f]+|\b[0-9a-f]*\d[0-9a-f]{7,}\b", "#", text)
    text = _FIGURES.sub("#", text)
    return re.sub(r"\s+", " ", text).strip()


def differences(shown: str, printed: str) -> list[str]:
    """Return the page's lines that are missing in a command's output, in this order; ``…`` matches any text."""
    left = [shape(line) for line in printed.splitlines() if line.strip()]
    missing = []
    for line in shown.splitlines():
        if line.strip() in ("", "…"):
            continue
        expected = re.compile(".*".join(re.escape(part) for part in shape(line).split("…")))
        place = next((number for number, real in enumerate(left) if expected.fullmatch(real)), None)
        if place is None:
            missing.append(line)
        else:
            left = left[place + 1 :]
    return missing
