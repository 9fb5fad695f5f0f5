"""``lakefeed docs``: the pages of the documentation, from the package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click

from lakefeed.cli.options import output_option
from lakefeed.cli.output import column_lines, emit, is_json, styled
from lakefeed.errors import ConfigError
from lakefeed.messages.pages import page_command
from lakefeed.operations.pages import Page, all_pages, find_page, indexed_pages, page_folder


@click.command()
@click.argument("topic", required=False)
@click.option("--open", "in_browser", is_flag=True, help="Open the page in a browser; without TOPIC the index.")
@output_option
def docs(topic: str | None, in_browser: bool) -> None:
    """Print the page about TOPIC, or open it in a browser; without TOPIC list the pages.

    The pages come with the package and fit its version. In a terminal a pager shows them; elsewhere they are Markdown.
    """
    folder = page_folder()
    pages = indexed_pages(folder)
    page = find_page(all_pages(folder), topic) if topic else None
    if in_browser:
        _open(folder, page)
    elif page is None:
        emit([_document(each) for each in pages], _list_lines(pages))
    else:
        text = (folder / page.path).read_text("utf-8")
        if is_json():
            emit({**_document(page), "text": text}, "")
        else:
            _print_page(text)


def _document(page: Page) -> dict[str, object]:
    return {"topic": page.topic, "parts": list(page.parts), "purpose": page.purpose}


def _list_lines(pages: list[Page]) -> Iterator[str]:
    for parts, group in groupby(pages, key=lambda page: page.parts):
        yield styled(": ".join(parts), bold=True)
        yield from column_lines([(page.topic, page.purpose) for page in group], left=2)
        yield ""
    yield f"{page_command('TOPIC')} prints a page; --open shows it in a browser"


def _print_page(text: str) -> None:
    if not sys.stdout.isatty():
        click.echo(text, nl=False)
        return
    from rich.console import Console

    from lakefeed.cli.markdown import MarkdownPage
    from lakefeed.operations.pages import with_commands

    console = Console()
    with console.capture() as captured:
        console.print(MarkdownPage(with_commands(text)))
    click.echo_via_pager(captured.get(), color=console.is_terminal and not console.no_color)


def _open(folder: Path, page: Page | None) -> None:
    from lakefeed.clients.environment import default_home
    from lakefeed.operations.page_html import write_pages

    written = write_pages(folder, default_home() / "pages", page.path if page else "README.md")
    emit({"file": str(written)}, str(written))
    if click.launch(written.as_uri()) != 0:
        raise ConfigError("no browser could be started here", where=str(written), hint="open this file in a browser")
