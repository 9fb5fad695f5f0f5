"""The root command: what a user who mistypes is told, and that help is quick to have."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from lakefeed import __version__
from lakefeed.cli.main import COMMANDS, root
from tests.cli import lakefeed


def test_a_mistyped_command_gets_the_nearest_name() -> None:
    done = CliRunner().invoke(root, ["rnu"])
    assert done.exit_code == 2
    assert "No such command 'rnu'. Did you mean 'run'?" in done.output


def test_a_word_like_no_command_gets_no_suggestion() -> None:
    done = CliRunner().invoke(root, ["xyzzy"])
    assert done.exit_code == 2
    assert "Did you mean" not in done.output


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_command_has_help(name: str) -> None:
    done = CliRunner().invoke(root, [name, "--help"])
    assert done.exit_code == 0
    assert done.output.startswith("Usage:")


def test_the_installed_command_ends_with_its_status() -> None:
    assert lakefeed("--version").stdout.split()[-1] == __version__
    assert lakefeed("run").returncode == 2
    assert lakefeed("check", "/nowhere.yaml").returncode == 2
