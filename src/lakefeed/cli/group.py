"""Groups of commands to which packages add commands; a command is imported when it is used."""

from __future__ import annotations

import difflib
from typing import Any

import click

from lakefeed.plugins import CliCommand, installed_commands, missing_command


class CommandGroup(click.Group):
    """A group to which packages add commands by whole names, such as ``offsets export``."""

    def added(self) -> dict[str, CliCommand]:
        """Return the commands that packages add, by their names in this group; none is imported yet."""
        prefix = f"{self.name} "
        found = installed_commands().items()
        return {name.removeprefix(prefix): command for name, command in found if name.startswith(prefix)}

    def whole_name(self, name: str) -> str:
        """Return the name by which a package declares a command."""
        return f"{self.name} {name}"

    def list_commands(self, ctx: click.Context) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *(name for name in self.added() if name not in own)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (own := super().get_command(ctx, cmd_name)) is not None:
            return own
        found = self.added().get(cmd_name)
        return None if found is None else found.load()

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0] if args else ""
        if not name.startswith("-") and name not in (known := self.list_commands(ctx)):
            if (missing := missing_command(self.whole_name(name))) is not None:
                raise missing
            near = difflib.get_close_matches(name, known, n=1)
            meant = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"No such command '{name}'.{meant}", ctx)
        return super().resolve_command(ctx, args)
