"""Commands and kinds of installed packages are listed; the error for a missing or broken package names the package."""

from importlib.metadata import EntryPoint

import pytest
from click.testing import CliRunner

from lakefeed import plugins
from lakefeed.cli.main import main, root
from lakefeed.config.blocks import SinkChoice, Source
from lakefeed.config.decoding import KeyDecode
from lakefeed.errors import ConfigError, install_command
from lakefeed.plugins import COMMANDS_GROUP, KEYS_OF_EXTRAS, KINDS_OF_EXTRAS, OF_EXTRAS, SETTINGS_GROUP


def test_the_listed_commands_of_extras_exist() -> None:
    assert {name for names in OF_EXTRAS.values() for name in names} <= set(plugins.installed_commands())


def test_the_listed_keys_of_extras_exist() -> None:
    ours = {entry.name for entry in plugins.installed(SETTINGS_GROUP) if entry.module.startswith("lakefeed_")}
    assert {name for names in KEYS_OF_EXTRAS.values() for name in names} == ours


@pytest.mark.parametrize(
    ("arguments", "extra"), [(["adopt", "p.yaml"], "adopt"), (["verify", "p.yaml", "--content"], "receipts")]
)
def test_the_error_for_a_missing_command_names_its_extra(
    arguments: list[str], extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plugins, "installed", lambda group: [])
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert f"next:  {install_command(extra)}" in capsys.readouterr().err


def test_a_commands_help_lists_the_options_that_packages_add() -> None:
    listed = CliRunner().invoke(root, ["verify", "--help"]).output
    assert "--content     Compare rows with the commits' receipts. --content --help shows more." in listed
    assert "--sign KEYFILE" in CliRunner().invoke(root, ["verify", "--content", "--help"]).output


def test_a_broken_package_disables_only_its_own_command(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("broken", "no_such_package:COMMANDS", COMMANDS_GROUP)
    monkeypatch.setattr(plugins, "installed", lambda group: [entry])
    listed = CliRunner().invoke(root, ["--help"])
    assert listed.exit_code == 0
    assert "broken" in listed.output
    assert "No module named 'no_such_package'" in listed.output
    assert CliRunner().invoke(root, ["check", "--help"]).exit_code == 0
    used = CliRunner().invoke(root, ["broken"])
    assert isinstance(used.exception, ConfigError)
    assert "the package of the command 'broken' cannot be imported" in str(used.exception)


def test_a_package_cannot_replace_a_command_of_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    run, entry = root.added()["run"], EntryPoint("x", f"{__name__}:COMMANDS", COMMANDS_GROUP)
    monkeypatch.setattr(plugins, "installed", lambda group: [entry])
    assert root.added()["run"] is run


COMMANDS = {"run": plugins.CliCommand("nowhere:run", "Another run.", "run")}


@pytest.mark.parametrize("name", ["jdbc", "jbdc"])
def test_the_error_for_a_missing_kind_names_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(set(names) <= set(plugins.installed_kinds(group)) for group, names in KINDS_OF_EXTRAS.items())
    monkeypatch.setattr(plugins, "installed_kinds", lambda group: {})
    assert SinkChoice.unknown_kind(name) == (f"no such sink is installed: '{name}'", install_command("jdbc"))
    hint = install_command("kinesis")
    assert Source.unknown_kind("kinesis") == ("no such source is installed: 'kinesis'", hint)
    assert KeyDecode.unknown_kind("csv") == ("no such format is installed: 'csv'", install_command("csv"))
    assert plugins.missing_kind(plugins.SINKS_GROUP, "clickhouse") is None
