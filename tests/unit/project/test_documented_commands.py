"""The commands in README, docs and Makefile exist and have the options that the texts show."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from lakefeed.cli.main import root
from lakefeed.config.loading import load
from lakefeed_local import demo_command
from lakefeed_local.home import Home, Memory
from tests.faults import test_sweep

ROOT = Path(__file__).parents[3]


def test_all_workers_of_a_test_run_use_the_same_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEED", raising=False)
    monkeypatch.setenv("SEEDS", "3")
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "one")
    drawn = test_sweep.seeds()
    assert len(set(drawn)) == 3
    assert test_sweep.seeds() == drawn
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "two")
    assert test_sweep.seeds() != drawn
    monkeypatch.delenv("PYTEST_XDIST_TESTRUNUID")
    assert test_sweep.seeds() != test_sweep.seeds()


def test_a_new_shell_can_run_the_commands_that_the_demo_prints(tmp_path: Path) -> None:
    home = Home(tmp_path / "the demo's home")
    home.make()
    home.remember(Memory(store="s3proxy", cluster_id="x", ports={"kafka": 1, "registry": 2, "store": 3}))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", "/usr/bin:/bin")
        printed = demo_command._look_around("lake.nyc.trips", home=home.root, keep=True)
    commands = [line.strip() for line in printed.splitlines() if line.startswith("  ")]
    (verify,) = (each for each in commands if each.startswith("lakefeed verify "))
    # Without servers, check only that the shell finds lakefeed and that the pipeline file gets all its variables.
    checked = "\n".join([*commands[: commands.index(verify)], "command -v lakefeed", "env"])
    ran = subprocess.run(
        ["/bin/bash", "-euc", checked], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    environment = dict(line.partition("=")[::2] for line in ran.stdout.splitlines() if "=" in line)
    read = load.read(Path(shlex.split(verify)[2]), environment=environment)
    assert list(read.problems) == []
    assert "KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:1\n" in ran.stdout
    assert "/catalog.db" in ran.stdout


def blocks(page: Path) -> list[str]:
    """Return the commands of a page's blocks, without comments and output."""
    found = re.findall(r"```(?:sh|bash|console)\n(.*?)```", page.read_text(), re.S)
    lines = [line for block in found for line in block.replace("\\\n", " ").splitlines()]
    if "```console" in page.read_text():
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [line for line in (each.partition(" #")[0].strip() for each in lines) if line and not line.startswith("#")]


def lakefeed_commands() -> list[tuple[str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [
        (page.name, line)
        for page in pages
        if page.name != "commands.md"
        for line in blocks(page)
        if line.startswith("lakefeed ")
    ]


def test_each_lakefeed_command_of_readme_and_docs_parses() -> None:
    """Options must exist and accept the shown values. Other tests check what the commands do."""
    commands = lakefeed_commands()
    assert len(commands) > 40
    wrong = []
    for page, line in commands:
        words = shlex.split(re.split(r" && | \| | > ", line)[0].replace("…", ""))
        try:
            _parse(root, words[1:])
        except click.ClickException as error:
            wrong.append(f"{page}: {line}: {error.format_message()}")
    assert wrong == []


def _parse(command: click.Command, words: list[str]) -> None:
    """Parse a command line with click, without running the command."""
    context = command.make_context(command.name or "", list(words), resilient_parsing=False)
    if isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if command.invoke_without_command and not rest:
            return
        _, inner, remaining = command.resolve_command(context, rest)
        assert inner is not None
        _parse(inner, remaining)


def test_documented_make_targets_and_their_files_exist() -> None:
    """Check the files and modules that ``make -n`` prints; CI really runs make test, demo, examples and faults."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.M))
    # Leave out the page of errors: its hints contain sentences such as "make room".
    docs = {*(ROOT / "docs").glob("*.md")} - {ROOT / "docs" / "errors.md"}
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(docs)]
    named = {
        name
        for page in pages
        for text in (*blocks(page), *re.findall(r"`(make [^`]+)`", page.read_text()))
        for name in re.findall(r"^make ([a-z-]+)", text)
    }
    assert named <= targets, named - targets
    assert set(re.findall(r"^\.PHONY: (.*)", makefile, re.M)[0].split()) == targets
    # Remove these variables, because `make test ARGS=…` would pass them on to these calls of make.
    bare = {name: value for name, value in os.environ.items() if name not in ("ARGS", "MAKEFLAGS", "MAKEOVERRIDES")}
    for target in sorted(targets):
        command = ["make", "-n", target]
        ran = subprocess.run(command, cwd=ROOT, env=bare, capture_output=True, text=True, check=True).stdout
        for path in re.findall(r"(?:tools|packages/[a-z]+/tests|(?<![/a-z])tests)/[a-z_/]+(?:\.py)?", ran):
            assert (ROOT / path).exists(), (target, path)
        for module in re.findall(r"-m (tools\.[a-z_]+)", ran):
            assert find_spec(module) is not None, (target, module)
        for line in re.findall(r"bin/(lakefeed .*)", ran):
            _parse(root, shlex.split(line)[1:])


def test_the_pipeline_files_that_readme_and_docs_name_exist() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    named = {
        each for page in pages for each in re.findall(r"examples/[\w/]+\.(?:yaml|py|sql|proto|md)", page.read_text())
    }
    assert named
    assert [each for each in sorted(named) if not (ROOT / each).exists()] == []
