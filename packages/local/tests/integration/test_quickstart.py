"""Run the quickstart in an empty folder, repeat it, and run the next steps that the output and the page name."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from lakefeed.cli.main import root
from lakefeed_local.doctor import Diagnosis
from lakefeed_local.quickstart import TOPIC
from lakefeed_local.stack import Endpoints
from tests.support.blocks import blocks_of
from tests.support.cli import lakefeed

ROWS = 3_000
PAGE = Path(__file__).parents[4] / "docs" / "query-a-table.md"


@pytest.fixture(scope="module")
def home(stack: Endpoints) -> dict[str, str]:
    """Return the environment of a user whose stack runs; it names the folder of the stack, and no servers."""
    return {"LAKEFEED_HOME": str(stack.catalog_file.parents[1])}


@pytest.fixture(scope="module")
def made(home: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    empty = tmp_path_factory.mktemp("new")
    done = lakefeed("quickstart", "first", "--rows", str(ROWS), environment=home, cwd=empty)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if re.match("[1-5]/5 ", line)][-1].startswith(
        "5/5 first/query.py"
    )
    assert f"{ROWS:,} rows in lake.quickstart.trips" in done.stderr
    assert "payment_type" in done.stdout
    assert "Traceback" not in done.stderr
    return empty / "first"


def test_a_later_run_in_the_quickstart_folder_lands_more_trips(made: Path, home: dict[str, str]) -> None:
    assert {path.name for path in made.iterdir()} == {"pipeline.yaml", "pipeline.schema.json", "query.py", "lake"}
    more = lakefeed(
        *("topics", "produce", TOPIC, "--generate", "taxi", "--rows", "500", "--start", str(ROWS)),
        environment=home,
        cwd=made,
    )
    assert more.returncode == 0, more.stderr
    done = lakefeed("run", "--once", environment=home, cwd=made)
    assert done.returncode == 0, done.stderr
    assert "500 rows" in done.stdout
    proof = lakefeed("verify", environment=home, cwd=made)
    assert proof.returncode == 0, proof.stdout + proof.stderr


def test_a_second_quickstart_changes_nothing(made: Path, home: dict[str, str]) -> None:
    file = made / "pipeline.yaml"
    mine = file.read_text() + "# my own\n"
    file.write_text(mine)
    (made / "query.py").write_text("print('my own query')\n")
    again = lakefeed("quickstart", made, "--output", "json", environment=home)
    assert again.returncode == 0, again.stderr
    document = json.loads(again.stdout)
    assert document["rows"] == 0
    assert document["records"] >= ROWS
    assert file.read_text() == mine
    assert "the table has all records already" in again.stderr
    missing = re.search(
        r"records already; for 10,000: lakefeed topics produce \S+ --generate taxi --rows (\d+)", again.stderr
    )
    assert missing
    assert int(missing[1]) == 10_000 - document["records"]
    assert sum(document["seconds"].values()) < 20


def test_the_python_code_of_the_page_queries_the_table(made: Path, home: dict[str, str]) -> None:
    blocks = [block.text for block in blocks_of(PAGE) if block.language == "python" and block.reason is None]
    code = "\n".join(blocks)
    assert len(blocks) > 6
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=made, env={"PATH": "/usr/bin", **home}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "payment_type" in done.stdout


def test_the_quickstart_refuses_the_folder_of_another_pipeline(home: dict[str, str], tmp_path: Path) -> None:
    text = "name: mine\nsource: {rate: {}}\nsink: console\n"
    (tmp_path / "pipeline.yaml").write_text(text)
    done = lakefeed("quickstart", tmp_path, environment=home, status=2)
    assert done.returncode == 2
    assert "the folder has the file of another pipeline" in done.stderr
    assert (tmp_path / "pipeline.yaml").read_text() == text


def test_the_quickstart_stops_if_a_check_of_the_machine_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    full = Diagnosis(name="home", verdict="error", what="/home, 0.2 GiB free", hint="free disk space")
    monkeypatch.setattr("lakefeed_local.quickstart.examine", lambda: [full])
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(root, ["quickstart"])
    assert done.exit_code == 1
    assert "this machine is not ready: home: /home, 0.2 GiB free" in str(done.exception)
    assert not list(tmp_path.iterdir())
