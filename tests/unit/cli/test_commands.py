"""Rules for all commands."""

from collections import defaultdict
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from lakefeed.cli.main import root

MOST_COMMANDS = 28
WIDTH = 80
SECTIONS = ["Options", "Begin", "Run", "Watch", "Look", "Repair", "Tables", "Deploy", "Servers"]
NO_REPORT = {
    *("completion", "dashboard", "dashboard hash-password", "metrics grafana", "metrics rules"),
    *("deploy manifest run", "deploy manifest produce"),
}
"""Commands that run a server or print a file of another program."""
SHARED = {
    *("--set", "--output", "--master", "--log-file", "--registry", "--bootstrap-servers"),
    *("--decode", "--yes", "--dry-run", "--watch", "--token-file"),
}
OTHER_MEANING = {
    ("topics produce", "--set"): "a setting of Kafka's producer",
    ("deploy submit", "--master"): "required, and never local",
    ("topics sample", "--output"): "records are rows, lines, JSON or bytes",
    ("topics tail", "--output"): "as for sample",
}


def leaves(
    group: click.Group, context: click.Context, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            inner = click.Context(command, info_name=name, parent=context)
            if command.invoke_without_command:
                yield " ".join((*path, name)), command
            yield from leaves(command, inner, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(leaves(root, click.Context(root)))


def test_help_lists_a_few_commands_in_sections_one_command_per_line() -> None:
    assert len(root.list_commands(click.Context(root))) <= MOST_COMMANDS
    lines = CliRunner().invoke(root, ["--help"], terminal_width=WIDTH).output.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert [line.rstrip(":") for line in lines if line.endswith(":") and not line.startswith(" ")] == SECTIONS
    rows = [line for line in lines[lines.index("Begin:") :] if line.startswith("  ")]
    assert all(line[2] != " " for line in rows)  # No text wraps to a second line.


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_takes_a_pipeline_reads_pipeline_yaml_by_default(name: str) -> None:
    for argument in COMMANDS[name].params:
        if isinstance(argument, click.Argument) and "PIPELINE" in (argument.metavar or argument.name or "").upper():
            assert argument.nargs == -1 or str(argument.default) == "pipeline.yaml", argument.name


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - NO_REPORT))
def test_a_command_can_print_json(name: str) -> None:
    [output] = [each for each in COMMANDS[name].params if "--output" in each.opts]
    assert isinstance(output.type, click.Choice)
    assert "json" in output.type.choices


def test_a_shared_option_has_the_same_help_in_all_commands() -> None:
    found: dict[str, dict[tuple[object, ...], list[str]]] = defaultdict(dict)
    for name, command in COMMANDS.items():
        for option in command.params:
            if isinstance(option, click.Option) and (name, option.opts[-1]) not in OTHER_MEANING:
                what = (option.metavar, option.multiple, option.is_flag, str(option.type.to_info_dict()), option.help)
                found[option.opts[-1]].setdefault(what, []).append(name)
    assert found.keys() >= SHARED
    different = {option: list(kinds.values()) for option, kinds in found.items() if option in SHARED and len(kinds) > 1}
    assert not different
