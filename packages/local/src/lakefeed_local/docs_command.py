"""``lakefeed docs``: finds and prints the pages of the documentation in the package."""

import sys
import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import click

from lakefeed.cli.options import output_option
from lakefeed.cli.output import column_lines, emit, is_json, styled
from lakefeed.errors import ConfigError
from lakefeed.messages.pages import page_command
from lakefeed_local import pages
from lakefeed_local.pages import Page


@click.command()
@click.argument("words", nargs=-1, metavar="[NAME | WORDS]")
@click.option("--open", "in_browser", is_flag=True, help="Open the page, or the index, in a browser.")
@output_option
def docs(words: tuple[str, ...], in_browser: bool) -> None:
    """Print the page NAME, find pages about WORDS, or list all.

    The pages are of the installed version. A terminal shows them in a pager; elsewhere they are Markdown.
    """
    folder, topic = pages.page_folder(), " ".join(words)
    all_pages = pages.indexed_pages(folder)
    page = pages.find_page(all_pages, topic)
    found = pages.search_pages(all_pages, topic) if words and page is None else []
    if in_browser:
        _open(folder, found[0][0] if found else page)
    elif found:
        emit([{**_document(page), "passage": passage} for page, passage in found], _found_lines(found))
    elif page is None:
        emit([_document(page) for page in all_pages], _list_lines(all_pages))
    elif is_json():
        emit({**_document(page), "text": page.text}, "")
    else:
        _print_page(page.text)


def _document(page: Page) -> dict[str, object]:
    return {"topic": page.topic, "parts": list(page.parts), "description": page.description}


def _list_lines(all_pages: list[Page]) -> Iterator[str]:
    for parts, group in groupby(all_pages, key=lambda page: page.parts):
        yield styled(": ".join(parts), bold=True)
        yield from _descriptions(group)
        yield ""
    yield f"{page_command('NAME')} prints a page, {page_command('WORDS')} finds pages; --open shows a page in a browser"


def _found_lines(found: list[tuple[Page, str]]) -> Iterator[str]:
    best, passage = found[0]
    yield f"{textwrap.indent(pages.with_commands(passage), '  ')}\n"
    yield styled(f"{page_command(best.topic)} prints the page; others:", bold=True)
    yield from _descriptions(page for page, _ in found[1:])


def _descriptions(listed: Iterable[Page]) -> Iterator[str]:
    rows = [(page.topic, textwrap.shorten(page.description, 100, placeholder=" …")) for page in listed]
    return column_lines(rows, left=2)


def _print_page(text: str) -> None:
    if not sys.stdout.isatty():
        click.echo(text, nl=False)
        return
    from rich.console import Console

    from lakefeed_local.markdown import MarkdownPage

    console = Console()
    with console.capture() as captured:
        console.print(MarkdownPage(pages.with_commands(text)))
    click.echo_via_pager(captured.get(), color=console.is_terminal and not console.no_color)


def _open(folder: Path, page: Page | None) -> None:
    from lakefeed.clients.environment import default_home

    written = pages.write_pages(folder, default_home() / "pages", page.path if page else "README.md")
    emit({"file": str(written)}, str(written))
    if click.launch(written.as_uri()) != 0:
        raise ConfigError("no browser starts on this machine", where=str(written), hint="open this file in a browser")
