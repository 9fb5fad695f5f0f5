"""Completion of commands and options."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from lakefeed.cli.main import root

LAKEFEED = Path(sys.executable).parent / "lakefeed"


def completed(words: str, current: int) -> list[str]:
    environment = {"_LAKEFEED_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(current)}
    done = subprocess.run([LAKEFEED], env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_commands_and_options_are_completed() -> None:
    assert completed("lakefeed dea", 1) == ["dead-letters"]
    assert "--accept-loss" in completed("lakefeed run --ac", 2)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_accepts_the_completion_script(tmp_path: Path) -> None:
    done = CliRunner(env={"HOME": str(tmp_path)}).invoke(root, ["completion", "bash", "--install"])
    assert done.exit_code == 0, done.output
    script = tmp_path / ".local/share/bash-completion/completions/lakefeed"
    shell = subprocess.run(
        ["bash", "-c", f"source {script} && complete -p lakefeed"], capture_output=True, text=True, check=True
    )
    assert "_lakefeed_completion" in shell.stdout


def test_an_unknown_shell_is_a_usage_error() -> None:
    done = CliRunner(env={"SHELL": "/bin/tcsh"}).invoke(root, ["completion"])
    assert done.exit_code == 2
    assert "name a shell" in done.output
