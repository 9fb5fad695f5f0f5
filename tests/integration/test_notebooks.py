"""Run the notebooks of ``examples/notebooks`` cell by cell on real servers. Needs ``uv sync --group notebooks``."""

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed_local.stack import Endpoints
from tools.examples import NOTEBOOKS, carry_out, commands, surroundings

COUNTED = [("94105", 3), ("10001", 1)]


@pytest.fixture(scope="module")
def hits(stack: Endpoints, lake: SparkSession) -> None:
    """Create the topic that the notebooks read."""
    with surroundings(stack):
        for words in commands(NOTEBOOKS / "live.yaml"):
            carry_out(words)


@pytest.fixture
def shell(hits: None, stack: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    for name, value in stack.as_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(NOTEBOOKS)


def counted(totals: Any) -> list[tuple[str, int]]:
    return [(each.zip, each.hits) for each in totals.itertuples()]


@pytest.mark.slow
def test_the_jupyter_notebooks_run_cell_by_cell(shell: None) -> None:
    notebook = json.loads(Path("explore.ipynb").read_text("utf-8"))
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "explore.ipynb", "exec"), names)
    assert counted(names["totals"]) == COUNTED
    assert len(names["sample"]) == 4
    assert not names["running"].is_alive()


@pytest.mark.slow
def test_the_marimo_notebooks_run_cell_by_cell(shell: None, lake: SparkSession) -> None:
    lake.catalog.dropTempView("hits_live")
    spec = spec_from_file_location("explore", NOTEBOOKS / "explore.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    _, names = module.app.run()
    assert counted(names["totals"]) == COUNTED
    assert not names["running"].is_alive()
