"""Imports the commands of other packages by their names."""

from __future__ import annotations

from typing import Any

from lakefeed.errors import MissingExtra
from lakefeed.plugins import installed_commands, missing_command


def load_command(name: str) -> Any:
    """Return the click command of this name from an installed package.

    Raises:
        MissingExtra: no installed package has the command.
        ConfigError: the command's package cannot be imported.
    """
    if (command := installed_commands().get(name)) is None:
        what, hint = f"no installed package has the command {name}", "lakefeed --help lists the installed commands"
        raise missing_command(name) or MissingExtra(what, hint=hint)
    return command.load()
