"""The page that an error names is about the problem, not about the class of the error."""

import importlib.util
import json
from pathlib import Path

import pytest

import lakefeed
from lakefeed.cli.main import main
from lakefeed.config.loading import shape
from lakefeed.config.loading.explain import type_at
from lakefeed.messages.pages import pages
from tests.support.pipeline_text import ENVIRONMENT, GOOD

DOCS = Path(__file__).parents[3] / "docs"

MISTAKES = {
    "  avro:\n": ("  avro:\n    subjct: a\n", "decode-formats"),
    "    table: lake.nyc.trips\n": ("    table: lake.nyc.trips\n    format_version: 9\n", "layout"),
    "checkpoint:": ("dashboard: {host: 0.0.0.0}\ncheckpoint:", "dashboard"),
    "name:": ("notify: {targets: {a: {webhok: {}}}}\nname:", "alerts"),
    "name: ": ("transform: {sql: SELECT * FROM a; SELECT 1}\nname: ", "transforms"),
}


@pytest.mark.parametrize("old", MISTAKES)
def test_a_mistake_in_a_file_names_the_page_of_the_setting(
    old: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    new, page = MISTAKES[old]
    assert old in GOOD
    file = tmp_path / "pipeline.yaml"
    file.write_text(GOOD.replace(old, new, 1))
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="2"):
        main(["plan", str(file), "--output", "json"])
    assert json.loads(capsys.readouterr().out)["page"] == f"lakefeed docs {page}"


def test_each_page_module_and_setting_exists() -> None:
    settings, modules = pages()["settings"], pages()["modules"]
    for page in {*settings.values(), *modules.values()}:
        assert (DOCS / f"{page}.md").is_file(), page
    for module in modules:
        assert importlib.util.find_spec(f"{lakefeed.__name__}.{module}") is not None, module
    for setting in settings:
        *block, name = setting.split(".")
        assert name in shape.fields(shape.model_of(type_at(tuple(block)))), setting
