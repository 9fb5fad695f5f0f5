"""What records say does no harm to a terminal, and stays the same value in JSON."""

from __future__ import annotations

import io
import json

from hypothesis import given
from hypothesis import strategies as st

from lakefeed.cli import dead_letters, read
from lakefeed.cli.output import echo
from lakefeed.messages.printable import printable, printable_json, unescaped
from lakefeed.monitor.terminal.progress_view import ProgressView

# Clears the screen, sets the window's title, deletes a character, a C1 introducer, turns the line round, a lone
# surrogate, a line separator.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\b\x7f\x9b31m\u202e\ud800\u2028 größe 東京"


def test_what_acts_on_a_terminal_is_written_as_an_escape() -> None:
    shown = printable(HOSTILE)
    assert shown.isprintable()
    assert shown.startswith(r"\x1b[2J\x1b]0;owned\x07\x08\x7f\x9b31m\u202e\ud800\u2028")
    assert shown.endswith(" größe 東京")


@given(st.text(st.characters(exclude_characters="\\")))
def test_the_escapes_can_be_taken_back(text: str) -> None:
    assert printable(text).isprintable()
    assert unescaped(printable(text)) == text


@given(st.text())
def test_json_keeps_its_value(text: str) -> None:
    document = json.dumps({"value": text}, ensure_ascii=False, indent=2)
    shown = printable_json(document)
    assert json.loads(shown) == {"value": text}
    assert shown.replace("\n", "").isprintable()


def test_each_way_to_print_a_record_is_safe(capsys: object) -> None:
    console = io.StringIO()
    from rich.console import Console

    ProgressView("feed", console=Console(file=console)).note(HOSTILE)
    shown = [
        dead_letters._bytes_text(HOSTILE.encode("utf-8", "surrogatepass")),
        dead_letters._bytes_text(HOSTILE.replace("\ud800", "").encode()),
        read._cell(HOSTILE),
        console.getvalue().replace("\n", ""),
    ]
    for each in shown:
        assert each.isprintable(), each


def test_a_large_value_is_cut_and_a_character_that_the_cut_splits_makes_no_hex_of_it() -> None:
    shown = dead_letters._bytes_text(b"x" + "ö".encode() * 500_000)
    assert shown.startswith("xöö")
    assert shown.endswith("… (1,000,001 bytes in all; --value-file writes them)")
    assert len(shown) < 3_000
    assert len(dead_letters._cut("k" * 1_000_000)) < 3_000


def test_echo_keeps_lines_and_colours_of_its_own(capsys: object) -> None:
    import click
    from click.testing import CliRunner

    @click.command()
    def say() -> None:
        echo("one\n\x1b[2Jtwo", fg="red")

    assert CliRunner().invoke(say, color=True).output == "\x1b[31mone\n\\x1b[2Jtwo\x1b[0m\n"
