"""A block of another package is read, checked and described as lakefeed's own blocks are."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakefeed import plugins
from lakefeed.config.loading.load import Reading, read
from lakefeed.config.models import PipelineConfig, pipeline_model
from lakefeed.config.schema import json_schema
from lakefeed.errors import install_command
from tests.support.plugin import forget_blocks, put_on_path

FILE = """\
name: taxi
source: {kafka: {bootstrap_servers: "broker:9092", topics: [orders]}}
decode: raw
sink: memory
pager:
  url: https://pager.example.org
  token: ${PAGER_TOKEN}
  every: 1 minute
"""
PAGER = '''
from collections.abc import Iterator

from pydantic import Field, SecretStr

from lakefeed.config.base import ConfigProblem
from lakefeed.config.blocks import Block, PipelineBlocks
from lakefeed.config.values import Period


class Pager(Block):
    """A pager, called at the end."""

    url: str = Field(description="The pager's address.")
    token: SecretStr | None = None
    """Its token; give it as ${NAME}."""
    every: Period = "5 minutes"

    def problems(self, config: PipelineBlocks) -> Iterator[ConfigProblem]:
        if config.trigger == "1 second":
            yield ConfigProblem("a pager is not called each second", hint="trigger: 1 minute")
'''
SETTINGS = {plugins.SETTINGS_GROUP: "pager = stranger_pager:Pager"}
EACH_SECOND = "a pager is not called each second"
HIDDEN = "something else (not shown: it is a secret)"


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    def install(entry_points: dict[str, str] = SETTINGS, source: str = PAGER) -> None:
        put_on_path(tmp_path, entry_points, monkeypatch, stranger_pager=source)

    yield install
    monkeypatch.undo()
    forget_blocks()


def checked(folder: Path, text: str = FILE, **options: Any) -> Reading:
    file = folder / "pipeline.yaml"
    file.write_text(text)
    return read(file, **{"environment": {"PAGER_TOKEN": "hunter2hunter2"}, **options})


def texts(reading: Reading) -> list[tuple[int | None, str, str | None]]:
    return [(problem.line, problem.what, problem.hint) for problem in reading.problems]


def test_the_settings_of_an_added_block_have_types(put: Callable[..., None], tmp_path: Path) -> None:
    put()
    config = checked(tmp_path).config
    from stranger_pager import Pager  # type: ignore[import-not-found]

    assert config is not None
    pager = config.block(Pager)
    assert pager is not None
    assert (pager.url, pager.every) == ("https://pager.example.org", "1 minute")
    assert "hunter2" not in repr(config)
    without = checked(tmp_path, FILE.split("pager:")[0]).config
    assert without is not None
    assert without.block(Pager) is None
    values = {"name": "taxi", "source": {"rate": {}}, "sink": "memory", "pager": {"url": "x"}}
    assert PipelineConfig.model_validate(values).block(Pager) == Pager(url="x")


@pytest.mark.parametrize(
    ("wrong", "line", "what", "hint"),
    [
        (("  url:", "  urll:"), 6, "unknown option 'urll' in 'pager'", "did you mean 'url'?"),
        (("pager:", "pagr:"), 5, "unknown option 'pagr'", "did you mean 'pager'?"),
        (("https://pager.example.org", "[a, b]"), 6, "'url' expects text; found a list", None),
        (("${PAGER_TOKEN}", "[a, b]"), 7, f"'token' expects text; found {HIDDEN}", None),
        (
            ("decode: raw", "decode: raw\ntrigger: 1 second"),
            6,
            "a pager is not called each second",
            "trigger: 1 minute",
        ),
    ],
)
def test_a_mistake_in_an_added_block_has_its_line_and_a_hint(
    put: Callable[..., None], tmp_path: Path, wrong: tuple[str, str], line: int, what: str, hint: str | None
) -> None:
    put()
    assert texts(checked(tmp_path, FILE.replace(*wrong))) == [(line, what, hint)]


def test_mistakes_in_added_blocks_and_in_lakefeeds_blocks_are_reported_in_one_run(
    put: Callable[..., None], tmp_path: Path
) -> None:
    put()
    text = FILE.replace("  url: https://pager.example.org\n", "").replace("1 minute", "often")
    assert [what for _, what, _ in texts(checked(tmp_path, text.replace("name: taxi\n", "")))] == [
        "'name' is missing",
        "'url' is missing in 'pager'",
        "'every': a duration is '<n> seconds|minutes|hours|days'",
    ]


def test_only_a_run_needs_the_secrets_of_an_added_block(put: Callable[..., None], tmp_path: Path) -> None:
    put()
    [(_, what, _)] = texts(checked(tmp_path, environment={}))
    assert what == "the environment variable PAGER_TOKEN is not set"
    assert texts(checked(tmp_path, environment={}, to_run=False)) == []


def test_the_schema_for_editors_has_the_added_block(put: Callable[..., None]) -> None:
    put()
    schema = json_schema()
    assert schema["properties"]["pager"]["description"] == "A pager, called at the end."
    pager = schema["$defs"]["Pager"]
    assert pager["required"] == ["url"]
    assert pager["properties"]["token"]["description"] == "Its token; give it as ${NAME}."


@pytest.mark.parametrize(
    ("entry", "source", "expected"),
    [
        ("pager = stranger_pager:Pager", "import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("pager = stranger_pager:Pagr", PAGER, "has no attribute 'Pagr'"),
        ("pager = stranger_pager:Field", PAGER, "is not a subclass of lakefeed.config.blocks.Block"),
        ("pager = stranger_pager:Pager\npager2 = stranger_pager:Pager", PAGER, None),
    ],
)
def test_a_broken_package_is_reported_at_its_block_only(
    put: Callable[..., None], tmp_path: Path, entry: str, source: str, expected: str | None
) -> None:
    put({plugins.SETTINGS_GROUP: entry}, source)
    assert texts(checked(tmp_path, FILE.split("pager:")[0])) == []
    found = texts(checked(tmp_path))
    if expected is None:
        assert found == []
    else:
        assert [line for line, _, _ in found] == [5]
        assert expected in found[0][1]
        assert "pager" in found[0][1]


def test_a_package_cannot_replace_a_block_of_lakefeed(put: Callable[..., None], tmp_path: Path) -> None:
    put({plugins.SETTINGS_GROUP: "sink = stranger_pager:Pager"})
    assert texts(checked(tmp_path, FILE.split("pager:")[0])) == []


def test_the_error_for_a_block_that_is_not_installed_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "KEYS_OF_EXTRAS", {"paging": ("pager",)})
    what = "the block 'pager' is for a part of lakefeed that is not installed"
    assert texts(checked(tmp_path)) == [(5, what, install_command("paging"))]
    assert texts(checked(tmp_path, to_run=False)) == []


def test_without_packages_the_model_is_pipeline_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "installed", lambda group: [])
    forget_blocks()
    assert pipeline_model() is PipelineConfig
    monkeypatch.undo()
    forget_blocks()
