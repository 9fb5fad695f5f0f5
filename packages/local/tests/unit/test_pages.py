"""``lakefeed docs`` lists, finds, prints and opens the pages; messages name only existing pages."""

import ast
import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from lakefeed.cli.main import root
from lakefeed.cli.output import fail
from lakefeed.errors import LakefeedError, RecordsLost, ResourceMissing
from lakefeed.messages.pages import page_command
from lakefeed_deploy.image import write_wheels
from lakefeed_local import docs_command
from lakefeed_local.docs_command import find_page, indexed_pages, page_folder, search_pages, with_commands
from lakefeed_local.examples import copy_example, packaged_examples
from lakefeed_local.markdown import MarkdownPage

ROOT = Path(__file__).parents[4]
FILES = [file for folder in ("src", "packages/*/src") for file in ROOT.glob(f"{folder}/**/*")]
PYTHON = [file for file in FILES if file.suffix == ".py"]
PAGES = indexed_pages(page_folder())
TOPICS = {page.topic for page in PAGES}


def path_of(name: str) -> str | None:
    page = find_page(PAGES, name)
    return page.path if page else None


def test_a_page_is_found_by_name_and_path() -> None:
    for name in ("exactly-once", "Exactly Once", "docs/exactly-once.md"):
        assert path_of(name) == "exactly-once.md"
    assert path_of("changelog") == "../CHANGELOG.md"
    assert path_of("upserts-and-upkeep") == "design/upserts-and-upkeep.md"
    assert path_of("schema-evolution") == "schema-evolution.md"
    for name in ("design-schema-evolution", "docs/design/schema-evolution.md"):
        assert path_of(name) == "design/schema-evolution.md"


def test_each_page_has_a_unique_topic_and_a_unique_description() -> None:
    assert len(TOPICS) == len(PAGES)
    descriptions = {page.topic: page.description for page in PAGES}
    assert {topic: text for topic, text in descriptions.items() if not 20 < len(text) < 260} == {}
    assert len(set(descriptions.values())) == len(PAGES)


@pytest.mark.parametrize(
    ("words", "topic"),
    {
        "debezium postgres upsert": "upserts",
        "spark operator secrets environment": "deploy-on-kubernetes",
        "80 topics one job": "many-topics",
        "lag alert slack": "alerts",
        "aws glue catalog": "catalogs",
        "restore topic from backup": "offsets",
        "upgrade": "operate",
        "read table trino duckdb": "query-a-table",
        "kubernetes": "deploy-on-kubernetes",
    }.items(),
)
def test_the_words_of_a_user_find_the_page(words: str, topic: str) -> None:
    found = search_pages(PAGES, words)
    assert topic in [page.topic for page, _ in found[:3]]
    assert all(passage.strip() for _, passage in found)


def test_the_error_for_words_that_no_page_contains_names_similar_pages() -> None:
    answer = CliRunner().invoke(root, ["docs", "upsrts"])
    assert isinstance(answer.exception, ResourceMissing)
    assert answer.exception.exit_status == 2
    assert "upserts" in str(answer.exception.hint)


def test_docs_with_words_shows_the_best_passage_and_lists_other_pages() -> None:
    shown = CliRunner().invoke(root, ["docs", "restore", "topic", "backup"]).output
    assert "A topic that was restored from a backup" in shown
    assert "lakefeed docs offsets prints the page; others:" in shown
    found = json.loads(CliRunner().invoke(root, ["docs", "restore", "topic", "backup", "--output", "json"]).output)
    assert found[0]["topic"] == "offsets"
    assert all(f"  {page['topic']} " in shown for page in found[1:])
    assert all(page["description"] for page in found)


def test_docs_lists_all_pages_and_prints_a_page() -> None:
    listed = CliRunner().invoke(root, ["docs"])
    assert listed.exit_code == 0
    assert all(f"  {page.topic} " in listed.output for page in indexed_pages(page_folder()))
    printed = CliRunner().invoke(root, ["docs", "sinks"])
    assert printed.output == (page_folder() / "sinks.md").read_text("utf-8")
    document = json.loads(CliRunner().invoke(root, ["docs", "sinks", "--output", "json"]).output)
    assert document["parts"] == ["How-to", "Where rows go"]
    assert document["text"] == printed.output


def test_a_terminal_shows_commands_instead_of_links() -> None:
    assert with_commands("see [run.md](run.md#progress), [sinks](sinks.md) and [x](https://example.org/a.md)") == (
        "see `lakefeed docs run`, `lakefeed docs sinks` and [x](https://example.org/a.md)"
    )
    assert with_commands("[what holds](exactly-once.md)") == "what holds (`lakefeed docs exactly-once`)"


@pytest.mark.parametrize("width", [40, 80])
def test_a_terminal_truncates_no_cell_of_a_table(width: int) -> None:
    for path in ("exactly-once.md", "support.md", "metrics.md"):
        text = (page_folder() / path).read_text("utf-8")
        shown = io.StringIO()
        Console(width=width, file=shown).print(MarkdownPage(text))
        assert shown.getvalue().count("…") == text.count("…"), path


def test_pages_are_written_as_html_with_working_links_and_pictures(tmp_path: Path) -> None:
    opened = docs_command.write_pages(page_folder(), tmp_path, "exactly-once.md")
    assert opened == tmp_path / "docs" / "exactly-once.html"
    text = opened.read_text("utf-8")
    assert '<h2 id="what-is-guaranteed">' in text
    assert "<td>" in text
    broken = []
    for file in tmp_path.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"#]+)', file.read_text("utf-8")):
            path = Path(target.removeprefix("file://"))
            if not re.match(r"https?:", target) and not (file.parent / path).exists():
                broken.append((file.name, target))
    assert broken == []


def test_the_changelog_is_written_as_html_too(tmp_path: Path) -> None:
    assert docs_command.write_pages(page_folder(), tmp_path, "../CHANGELOG.md") == tmp_path / "CHANGELOG.html"


def test_a_wheel_contains_all_pages(tmp_path: Path) -> None:
    with zipfile.ZipFile(write_wheels(tmp_path)[0]) as wheel:
        wheel.extractall(tmp_path / "installed")
    folder = tmp_path / "installed" / "lakefeed" / "docs"
    for page in indexed_pages(folder):
        assert (folder / page.path).is_file(), page
    assert {page.topic for page in indexed_pages(folder)} == TOPICS


def calls(text: str) -> set[str]:
    """Return the topics with which a module's source calls ``page_command``."""
    return {
        str(node.args[0].value)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == page_command.__name__
        and isinstance(node.args[0], ast.Constant)
    }


def test_each_page_that_the_package_names_exists() -> None:
    python = [file.read_text("utf-8") for file in PYTHON]
    named = {topic for text in python for topic in calls(text)} - {"NAME", "WORDS"}
    assert len(named) > 5
    others = [file for file in FILES if file.suffix in (".yml", ".yaml", ".json", ".html", ".js")]
    texts = [*python, *(file.read_text("utf-8") for file in others if "vendor" not in file.parts)]
    written = {topic for text in texts for topic in re.findall(r"lakefeed docs ([a-z][a-z0-9-]+)", text)} - {"lists"}
    assert "s3-requests" in written
    assert {topic for topic in named | written if topic not in TOPICS} == set()


def strings(text: str) -> list[str]:
    """Return the strings of a module without its docstrings."""
    nodes = list(ast.walk(ast.parse(text)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]


def test_messages_name_pages_by_command_and_not_by_file() -> None:
    """Docstrings of settings count as messages, because the reference and the JSON Schema show them."""
    found = {
        (file.name, text)
        for file in PYTHON
        for text in strings(file.read_text("utf-8"))
        if re.search(r"\bdocs/[\w-]+\.md", text)
    }
    assert found == set()
    schema = (page_folder() / "schema" / "pipeline.schema.json").read_text("utf-8")
    assert not re.search(r"\bdocs/[\w-]+\.md", schema)


def test_a_copied_example_names_pages_by_command(tmp_path: Path) -> None:
    for example in packaged_examples():
        copy_example(example, tmp_path)
    texts = {file.name: file.read_text("utf-8") for file in tmp_path.rglob("*.*") if file.suffix in (".md", ".yaml")}
    assert {name for name, text in texts.items() if "docs/" in text.replace("/docs/v", "")} == set()


def every_class(base: type[LakefeedError]) -> Iterator[type[LakefeedError]]:
    """Yield an error class and all its subclasses."""
    yield base
    for below in base.__subclasses__():
        yield from every_class(below)


def test_each_error_names_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    classes = {each for each in every_class(LakefeedError) if each.__module__.startswith("lakefeed.")}
    assert len(classes) > 20
    assert {each.topic for each in classes} <= TOPICS
    fail(RecordsLost("the topic was recreated"), as_json=False)
    assert capsys.readouterr().err == "error: the topic was recreated\n  page:  lakefeed docs offsets\n"
    fail(RecordsLost("it is lost", hint="lakefeed docs offsets explains it"), as_json=False)
    assert capsys.readouterr().err == "error: it is lost\n  next:  lakefeed docs offsets explains it\n"
    fail(RecordsLost("it is lost"), as_json=True)
    assert json.loads(capsys.readouterr().out)["page"] == "lakefeed docs offsets"
