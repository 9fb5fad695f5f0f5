"""Draw a terminal's screen as SVG, by rich, in the colours that the program has chosen."""

import io
import re
from itertools import groupby

import pyte
from pyte.screens import Char
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.text import Text

# rich's template loads its font from a server, which a picture in the docs must not do.
TEMPLATE = re.sub(r"@font-face \{\{.*?\}\}\n|<!--.*?-->\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def screen_svg(screen: pyte.Screen, *, title: str) -> str:
    """Return the picture of a screen, without its empty lines at the end."""
    lines = [_line(screen, row) for row in range(screen.lines)]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    console = Console(record=True, width=screen.columns, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    for line in lines:
        console.print(line, no_wrap=True, overflow="crop", highlight=False)
    # Use a fixed id, so that the names of styles do not change with each picture.
    return console.export_svg(title=title, code_format=TEMPLATE, unique_id="lakefeed")


def _line(screen: pyte.Screen, row: int) -> Text:
    text = Text()
    # Group characters of the same style, because the picture gets an element for each group.
    cells = (screen.buffer[row][column] for column in range(screen.columns))
    for style, alike in groupby(cells, key=_style):
        text.append("".join(shown.data for shown in alike), style)
    text.rstrip()
    return text


def _style(shown: Char) -> Style:
    def colour(name: str) -> str | None:
        if name == "default":
            return None
        return f"#{name}" if re.fullmatch("[0-9a-f]{6}", name) else name.replace("brown", "yellow")

    return Style(
        color=colour(shown.fg),
        bgcolor=colour(shown.bg),
        bold=shown.bold,
        reverse=shown.reverse,
        italic=shown.italics,
        underline=shown.underscore,
    )
