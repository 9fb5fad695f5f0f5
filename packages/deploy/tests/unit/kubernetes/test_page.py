"""Run the commands of docs/deploy-on-kubernetes.md, and compare their output with the page."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[5]
PAGE = ROOT / "docs" / "deploy-on-kubernetes.md"


def sessions() -> list[tuple[str, str]]:
    """Return the commands of the page that have an output there, each with its output."""
    blocks = re.findall(r"^( *)```console\n(.*?)^ *```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    found = [textwrap.dedent(block).partition("\n") for _, block in blocks]
    return [(command.removeprefix("$ "), answer) for command, _, answer in found]


def test_the_page_has_commands_with_output() -> None:
    assert len(sessions()) == 3


@pytest.mark.waits
@pytest.mark.parametrize(("command", "answer"), sessions())
def test_each_command_on_the_page_prints_the_output_on_the_page(command: str, answer: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", command],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == answer
