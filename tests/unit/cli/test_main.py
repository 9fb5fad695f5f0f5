"""The root command: exit statuses, errors, and quick help."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from lakefeed import __version__
from lakefeed.cli.main import main, root
from tests.support.cli import COMMAND, lakefeed


@pytest.mark.parametrize(("word", "hint"), [("rnu", " Did you mean 'run'?"), ("xyzzy", "")])
def test_the_error_for_an_unknown_command_suggests_a_similar_command(word: str, hint: str) -> None:
    done = CliRunner().invoke(root, [word])
    assert done.exit_code == 2
    assert f"No such command '{word}'.{hint}\n" in done.output


@pytest.mark.parametrize("name", list(root.added()))
def test_each_command_has_help(name: str) -> None:
    done = CliRunner().invoke(root, [name, "--help"])
    assert done.exit_code == 0
    assert done.output.startswith("Usage:")


FULL = """\
error: No space left on device
  where: the output, or a folder that LAKEFEED_HOME, LAKEFEED_CACHE or TMPDIR names
  next:  free disk space, and run the command again
  page:  lakefeed docs troubleshooting
"""


@pytest.mark.parametrize(
    ("number", "file", "said", "status"),
    [
        (errno.ENOSPC, "/data/a.log", ("No space left", "/data/a.log", "free disk space"), 1),
        (errno.EROFS, "/data/a.log", ("Read-only", "/data/a.log", "name another place"), 2),
        (errno.ENOTDIR, "/data/a/b", ("Not a directory", "/data/a/b", "name another place"), 2),
        (errno.EIO, "/data/a.log", ("Input/output error", "/data/a.log"), 1),
    ],
)
def test_the_error_for_an_unwritable_file_names_the_file_and_has_a_hint(
    number: int,
    file: str,
    said: tuple[str, ...],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), file)

    monkeypatch.setattr(root, "main", fails)
    monkeypatch.setattr("lakefeed.cli.main._leave_stdout", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main(["run"])
    assert ended.value.code == status
    text = capsys.readouterr().err
    assert all(each in text for each in said), text


def test_a_broken_pipe_or_a_full_disk_causes_no_stack_trace() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as pipe, open("/dev/full", "wb") as full:
        for stream, message in ((pipe, ""), (full, FULL)):
            command = [*COMMAND, "jars", "list", "--output", "json"]
            ran = subprocess.run(command, stdout=stream, stderr=subprocess.PIPE, text=True, check=False)
            assert (ran.returncode, ran.stderr) == (1, message)


@pytest.mark.parametrize("variables", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_a_character_that_the_terminal_cannot_encode_causes_no_error(variables: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "größe.yaml"
    file.write_text("größe: 1\n")
    ran = lakefeed("check", file, environment=variables, status=2)
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr + ran.stdout


def test_the_installed_script_exits_with_the_status_of_the_command() -> None:
    assert lakefeed("--version", status=None).stdout.split()[-1] == __version__
    assert lakefeed("run", status=None).returncode == 2
    assert lakefeed("check", "/nowhere.yaml", status=None).returncode == 2


HEAVY = (
    *(
        "confluent_kafka",
        "duckdb",
        "pyiceberg",
        "pyspark",
        "rich",
        "yaml",
        "argon2",
        "starlette",
        "uvicorn",
        "lakefeed.config.models",
        "lakefeed.pipeline",
    ),
    *("lakefeed.feed", "lakefeed.ledger", "lakefeed_upkeep.maintain", "lakefeed.records", "lakefeed.sinks"),
)
"""Modules that only the bodies of commands may import: without them, help appears at least half a second sooner."""


def test_the_help_of_commands_imports_no_heavy_modules() -> None:
    script = f"""
import sys
from click.testing import CliRunner
from lakefeed.cli.main import main, root

for name in root.added():
    for option in ("--help", "--misspelt"):
        assert "Usage:" in CliRunner().invoke(root, [name, option]).output
    if heavy := [module for module in {HEAVY} if module in sys.modules]:
        sys.exit(f"lakefeed {{name}} --help imports {{heavy}}")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
