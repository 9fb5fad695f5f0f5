"""The root command: errors for mistyped commands, and help that appears quickly."""

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


def test_a_mistyped_command_gets_the_nearest_name() -> None:
    done = CliRunner().invoke(root, ["rnu"])
    assert done.exit_code == 2
    assert "No such command 'rnu'. Did you mean 'run'?" in done.output


def test_a_word_like_no_command_gets_no_suggestion() -> None:
    done = CliRunner().invoke(root, ["xyzzy"])
    assert done.exit_code == 2
    assert "Did you mean" not in done.output


@pytest.mark.parametrize("name", list(root.added()))
def test_each_command_has_help(name: str) -> None:
    done = CliRunner().invoke(root, [name, "--help"])
    assert done.exit_code == 0
    assert done.output.startswith("Usage:")


FULL = """\
error: No space left on device
  where: the output, or a folder that LAKEFEED_HOME, LAKEFEED_CACHE or TMPDIR names
  next:  make room there, and run the command again
  page:  lakefeed docs troubleshooting
"""


@pytest.mark.parametrize(
    ("number", "file", "said", "status"),
    [
        (errno.ENOSPC, "/data/a.log", ("No space left", "/data/a.log", "make room there"), 1),
        (errno.EROFS, "/data/a.log", ("Read-only", "/data/a.log", "name another place"), 2),
        (errno.ENOTDIR, "/data/a/b", ("Not a directory", "/data/a/b", "name another place"), 2),
        (errno.EIO, "/data/a.log", ("Input/output error", "/data/a.log"), 1),
    ],
)
def test_a_file_that_cannot_be_written_is_named_with_what_to_do(
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


def test_output_that_is_not_read_is_no_traceback() -> None:
    """Output to ``lakefeed … | head -1``, and to a full disk."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as pipe, open("/dev/full", "wb") as full:
        for stream, status, said in (
            (pipe, 1, ""),
            (full, 1, FULL),
        ):
            command = [*COMMAND, "jars", "list", "--output", "json"]
            ran = subprocess.run(command, stdout=stream, stderr=subprocess.PIPE, text=True, check=False)
            assert (ran.returncode, ran.stderr) == (status, said)


@pytest.mark.parametrize("variables", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_a_terminal_without_our_letters_is_no_error(variables: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "größe.yaml"
    file.write_text("größe: 1\n")
    ran = lakefeed("check", file, environment=variables, status=2)
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr + ran.stdout


def test_the_installed_command_ends_with_its_status() -> None:
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
    *("lakefeed.feed", "lakefeed.ledger", "lakefeed.maintenance", "lakefeed.records", "lakefeed.sinks"),
)
"""Modules that only the bodies of commands may import: without them, help appears at least half a second sooner."""


def test_help_of_no_command_imports_heavy_modules() -> None:
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
