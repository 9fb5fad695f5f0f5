"""Draw the documentation's pictures of concepts as SVG, with boxes, arrows and texts. ``make docs`` writes them.

Code hosts, the site and ``lakefeed docs --open`` all show SVG without a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_COLOURS = {
    "plain": ("#f6f8fa", "#57606a"),
    "input": ("#ddf4ff", "#0969da"),
    "work": ("#fff8c5", "#9a6700"),
    "good": ("#dafbe1", "#1a7f37"),
    "bad": ("#ffebe9", "#cf222e"),
}
_LINE = 18


class Picture:
    """A picture that is drawn step by step.

    Args:
        title: the text for screen readers.
    """

    def __init__(self, title: str, width: int, height: int) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" font-family="system-ui, sans-serif" font-size="13">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto">'
            '<path d="M0 0L10 5L0 10z" fill="#57606a"/></marker></defs>',
            # A white background keeps the dark texts readable on dark pages.
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        ]

    def box(self, x: int, y: int, width: int, height: int, *lines: str, kind: str = "plain") -> None:
        """Draw a box with centred lines of text; the first line is bold."""
        fill, stroke = _COLOURS[kind]
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{stroke}"/>'
        )
        top = y + height / 2 - (len(lines) - 1) * _LINE / 2 + 5
        for number, line in enumerate(lines):
            weight = ' font-weight="600"' if number == 0 else ""
            self._parts.append(_text(line, x + width / 2, top + number * _LINE, f'text-anchor="middle"{weight}'))

    def arrows(self, *paths: str, dashed: bool = False) -> None:
        """Draw arrows along points: ``"170 130L198 130"``."""
        style = ' fill="none" stroke="#57606a" marker-end="url(#head)"' + ' stroke-dasharray="5 4"' * dashed
        self._parts += [f'<path d="M{path}"{style}/>' for path in paths]

    def note(self, x: int, y: int, *lines: str, anchor: str = "start") -> None:
        """Write lines of small text, as a note."""
        for number, line in enumerate(lines):
            self._parts.append(_text(line, x, y + number * 16, f'text-anchor="{anchor}" font-size="12" fill="#57606a"'))

    def cells(self, x: int, y: int, texts: Sequence[str], *, width: int = 44, kind: str = "plain") -> None:
        """Draw a row of cells, such as a topic's partition or a table."""
        for number, text in enumerate(texts):
            fill, stroke = _COLOURS[kind]
            left = x + number * width
            self._parts.append(
                f'<rect x="{left}" y="{y}" width="{width}" height="26" fill="{fill}" stroke="{stroke}"/>'
            )
            self._parts.append(_text(text, left + width / 2, y + 18, 'text-anchor="middle" font-size="12"'))

    def svg(self) -> str:
        """Return the SVG file's text."""
        return "\n".join([*self._parts, "</svg>", ""])


def _text(text: str, x: float, y: float, attributes: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" {attributes}>{escape(text)}</text>'


def flow() -> str:
    """Return docs/images/flow.svg: the path of a record from the topic to the table."""
    picture = Picture(
        "Records of a topic are read, decoded and transformed; rows and offsets enter the table", 900, 300
    )
    picture.box(20, 90, 150, 80, "Kafka topic", "records at offsets", kind="input")
    picture.box(200, 10, 150, 44, "Schema Registry", kind="input")
    picture.box(200, 90, 150, 80, "decode", "by the schema id", "of each record", kind="work")
    picture.box(380, 90, 150, 80, "expect, transform", "rules, SQL, Python", kind="work")
    picture.box(560, 90, 150, 80, "check and commit", "rows + offset ranges", "in one step", kind="work")
    picture.box(740, 90, 140, 80, "Iceberg table", "or another sink", kind="good")
    picture.box(380, 220, 150, 56, "dead letters", "complete, replayable", kind="bad")
    picture.box(560, 220, 150, 56, "checkpoint", "derived from the table")
    picture.box(740, 220, 140, 56, "any engine", "Spark, DuckDB, Trino", kind="good")
    picture.box(20, 220, 330, 56, "lakefeed run", "dashboard, metrics, alerts, verify")
    picture.arrows(
        "170 130L198 130", "275 54L275 88", "350 130L378 130", "530 130L558 130", "710 130L738 130", "455 170L455 218"
    )
    picture.arrows("635 170L635 218", dashed=True)
    picture.arrows("810 170L810 218")
    picture.note(462, 198, "no row")
    picture.note(640, 80, "begins where the last commit ended, or is refused", anchor="middle")
    return picture.svg()


def exactly_once() -> str:
    """Return docs/images/exactly-once.svg: the check that lets a batch be committed once."""
    picture = Picture("A batch is committed only where the table's last commit ended", 860, 330)
    picture.note(20, 28, "topic trips, partition 0: offsets")
    picture.cells(20, 38, ["0", "…", "109"], kind="good")
    picture.cells(152, 38, ["110", "…", "219"], kind="good")
    picture.cells(284, 38, ["220", "…", "319"], kind="input")
    picture.cells(416, 38, ["320", "…"], kind="plain")
    picture.box(20, 110, 132, 56, "commit 1", "[0, 110)", kind="good")
    picture.box(160, 110, 124, 56, "commit 2", "[110, 220)", kind="good")
    picture.box(330, 110, 160, 56, "next batch", "[220, 320), fence 7", kind="input")
    check = ("check, inside the commit", "begins at 220? same topic?", "fence 7 still the newest?")
    picture.box(560, 96, 280, 84, *check, kind="work")
    picture.arrows("86 64L86 108", "222 64L222 108", "352 64L400 108", "490 138L558 138")
    picture.box(560, 240, 130, 66, "yes: swapped", "commit 3 is", "rows + [220, 320)", kind="good")
    picture.box(710, 240, 130, 66, "no: refused", "nothing is", "written", kind="bad")
    picture.arrows("625 180L625 238", "775 180L775 238")
    picture.note(20, 204, "the table's snapshots: rows and ranges, each in one atomic step")
    picture.box(20, 230, 470, 76, "a repeated batch [110, 220)", "has the ranges of the newest commit: skipped")
    return picture.svg()


def ledger() -> str:
    """Return docs/images/ledger.svg: the content of a commit."""
    picture = Picture(
        "The table's metadata has snapshots with offset ranges, and the feed's position and fence", 860, 330
    )
    picture.box(20, 20, 150, 60, "catalog", "points at one file", kind="plain")
    picture.box(250, 20, 270, 60, "metadata of the table", "swapped as a whole: one step", kind="work")
    picture.arrows("170 50L248 50")
    first = ("snapshot 41", "feed taxi, batch 11, fence 6", "trips: 0: [0, 110)", "110 records, 1 dead letter")
    picture.box(20, 150, 240, 110, *first, kind="good")
    second = ("snapshot 42", "feed taxi, batch 12, fence 7", "trips: 0: [110, 220)", "110 records, 0 dead letters")
    picture.box(290, 150, 240, 110, *second, kind="good")
    properties = ("properties", "lakefeed.position.taxi: 0: 220", "lakefeed.fence.taxi: 7", "outlive expired snapshots")
    picture.box(570, 150, 270, 110, *properties, kind="input")
    picture.arrows("330 80L160 148", "400 80L410 148", "470 80L690 148", "260 205L288 205")
    picture.note(140, 290, "data files of its rows", anchor="middle")
    picture.note(410, 290, "data files of its rows", anchor="middle")
    picture.arrows("140 260L140 276", "410 260L410 276")
    picture.note(705, 290, "where the next batch must begin", anchor="middle")
    return picture.svg()


def checkpoint() -> str:
    """Return docs/images/checkpoint.svg: the steps of a batch, and the effect of a kill between two steps."""
    picture = Picture("A batch is planned, written, committed to the table, then logged", 900, 300)
    steps = [
        ("1 plan", "checkpoint:", "offsets/12", "plain"),
        ("2 write", "data files,", "not yet visible", "work"),
        ("3 commit", "table: rows +", "offset ranges", "good"),
        ("4 log", "checkpoint:", "commits/12", "plain"),
    ]
    for number, (name, first, second, kind) in enumerate(steps):
        picture.box(20 + number * 225, 40, 165, 84, name, first, second, kind=kind)
        if number:
            picture.arrows(f"{185 + (number - 1) * 225} 82L{18 + number * 225} 82")
    kills = [
        (215, "killed here:", "the same offsets", "are read again"),
        (440, "killed here:", "the same; files that", "no snapshot has are orphans"),
        (665, "killed here:", "the table has the batch:", "it is skipped, then logged"),
    ]
    for x, *lines in kills:
        picture.arrows(f"{x} 172L{x} 90", dashed=True)
        picture.box(x - 100, 174, 200, 70, *lines, kind="bad")
    picture.note(
        450, 280, "checkpoint lost or rolled back: a start rebuilds it from the table's last commit", anchor="middle"
    )
    return picture.svg()


def schema_evolution() -> str:
    """Return docs/images/schema-evolution.svg: the steps by which a new field becomes a column."""
    picture = Picture(
        "A new schema id changes the reader's schema, then the table, then the batch is committed", 900, 310
    )
    picture.note(20, 26, "records of one batch")
    picture.cells(20, 36, ["id 7", "id 7", "id 9", "id 7"], width=52, kind="input")
    picture.box(20, 120, 208, 60, "schema id 9 is new", "field fare: double", kind="input")
    picture.arrows("150 62L124 118")
    picture.box(280, 120, 170, 60, "reader's schema", "7 and 9 merged", kind="work")
    picture.arrows("228 150L278 150")
    picture.box(500, 120, 170, 60, "ALTER TABLE", "ADD COLUMNS (fare)", kind="work")
    picture.arrows("450 150L498 150")
    picture.box(720, 120, 160, 60, "decode again", "then commit", kind="good")
    picture.arrows("670 150L718 150")
    picture.note(500, 222, "the table")
    picture.cells(500, 232, ["trip", "zone", "fare"], width=80, kind="plain")
    picture.cells(500, 258, ["1", "a", "null"], width=80, kind="good")
    picture.cells(740, 258, ["older rows"], width=120)
    picture.cells(500, 284, ["2", "b", "12.5"], width=80, kind="good")
    picture.cells(740, 284, ["from id 9"], width=120)
    picture.box(20, 232, 400, 70, "does not fit?", "dead letters, or the feed stops before the commit", kind="bad")
    picture.arrows("340 180L240 230", dashed=True)
    return picture.svg()


PICTURES = {
    "flow": flow,
    "exactly-once": exactly_once,
    "ledger": ledger,
    "checkpoint": checkpoint,
    "schema-evolution": schema_evolution,
}
