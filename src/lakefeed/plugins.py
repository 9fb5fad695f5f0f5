"""Finds the sinks, sources, formats, blocks and commands that installed packages add, by their entry points.

The core imports no plug-in by name. It knows only which extra of lakefeed brings a command or a key, so that the error
for a missing command or key names the command that installs the extra.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from lakefeed.errors import ConfigError, MissingExtra, install_command

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Section = Literal["begin", "run", "watch", "look", "repair", "tables", "deploy", "servers"]
"""The sections of ``lakefeed --help``, in the order of work."""

COMMANDS_GROUP = "lakefeed.commands"
SETTINGS_GROUP = "lakefeed.settings"
FOLLOWERS_GROUP = "lakefeed.followers"
SINKS_GROUP = "lakefeed.sinks"
SOURCES_GROUP = "lakefeed.sources"
FORMATS_GROUP = "lakefeed.formats"
ROUTES_GROUP = "lakefeed.routes"
CHECKS_GROUP = "lakefeed.checks"
OF_RUNS = (SINKS_GROUP, SOURCES_GROUP, FORMATS_GROUP, SETTINGS_GROUP, FOLLOWERS_GROUP, ROUTES_GROUP)
"""The entry-point groups whose packages a run needs. A run needs no package of the group ``lakefeed.commands``."""

OF_EXTRAS: Mapping[str, tuple[str, ...]] = {
    "adopt": ("adopt", "offsets export"),
    "dashboard": ("dashboard", "top"),
    "deploy": ("deploy", "jars"),
    "inspect": ("read", "schema"),
    "local": (
        *("init", "docs", "quickstart", "examples", "completion"),
        *("topics", "topics produce", "local", "local demo"),
    ),
    "observe": ("metrics", "notify", "runs"),
    "receipts": ("verify --content", "verify --statement"),
    "repair": ("backfill", "feed", "offsets rewind", "dead-letters"),
    "testing": ("test",),
    "upkeep": ("tables",),
}
"""The commands that each extra of lakefeed brings."""
KEYS_OF_EXTRAS: Mapping[str, tuple[str, ...]] = {
    "dashboard": ("dashboard",),
    "deploy": ("deploy",),
    "observe": ("lineage", "notify", "otlp", "runs"),
    "receipts": ("receipts",),
    "testing": ("tests",),
    "upkeep": ("upkeep",),
}
"""The keys of a pipeline file that each extra brings."""
KINDS_OF_EXTRAS: Mapping[str, tuple[str, ...]] = {
    SINKS_GROUP: ("elasticsearch", "jdbc", "kafka"),
    SOURCES_GROUP: ("kinesis",),
    FORMATS_GROUP: ("csv",),
}
"""The sinks, sources and formats that an extra of the same name brings."""


@dataclass(frozen=True)
class CliCommand:
    """A command of the command line.

    Attributes:
        target: ``module:function`` of the click command; imported when the command is used.
        help: one line of ``lakefeed --help``.
        section: the section of ``lakefeed --help`` that lists it.
    """

    target: str
    help: str
    section: Section

    def load(self) -> Any:
        """Import the command's module and return the click command.

        Raises:
            ConfigError: the command's package cannot be imported.
        """
        return load(self.target, f"the package of the command '{self.target.partition(':')[2]}'")


def load(target: str, what: str, *, where: str | None = None) -> Any:
    """Import ``package.module:name`` of an installed package.

    Raises:
        ConfigError: the name cannot be imported; ``what`` begins the error's text.
    """
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        hint = f"reinstall the package that has {module}"
        raise ConfigError(f"{what} cannot be imported: {error}", where=where, hint=hint) from error


def installed(group: str) -> list[EntryPoint]:
    """Return the entry points of a group by name; imports none of them."""
    return list(_entry_points(group, tuple(sys.path)))


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> list[EntryPoint]:
    """Return a group's entry points on ``path``; cached, since a command asks for them up to three times."""
    from importlib.metadata import entry_points  # Imported here so that lakefeed --version starts quickly.

    return sorted(entry_points(group=group), key=lambda each: each.name)


def installed_commands() -> dict[str, CliCommand]:
    """Return the commands of installed packages.

    An entry point of the group ``lakefeed.commands`` is a mapping of names to ``CliCommand``. A name of two words, such
    as ``offsets export``, adds a command to a group. Its module must import quickly, because ``lakefeed --help``
    imports it.
    """
    commands: dict[str, CliCommand] = {}
    for entry in installed(COMMANDS_GROUP):
        try:
            commands |= entry.load()
        except Exception as error:
            # A broken package must not break other commands: the help shows the error, and only its own command fails.
            target, shown = f"{entry.module}:{entry.name}", f"Cannot be imported: {error}"
            commands[entry.name] = CliCommand(target, shown, "servers")
    return commands


def installed_kinds(group: str) -> dict[str, EntryPoint]:
    """Return the sinks, sources or formats of installed packages by name; imports none of them."""
    return {entry.name: entry for entry in installed(group)}


def load_route(name: str, *, where: str) -> Any:
    """Import the entry point of ``lakefeed.routes``, which writes each row to the table that a field names.

    Raises:
        MissingExtra: no installed package has such an entry point.
    """
    if (entry := installed_kinds(ROUTES_GROUP).get(name)) is None:
        what = "no installed package lands rows in the tables that a field names"
        raise MissingExtra(what, where=where, hint=install_command("routes"))
    return load(entry.value, "the package that routes rows to tables", where=where)


def missing_kind(group: str, name: str) -> str | None:
    """Return the command that installs the extra with a kind of this or a similar name; None without such an extra."""
    missing = [each for each in KINDS_OF_EXTRAS[group] if each not in installed_kinds(group)]
    near = difflib.get_close_matches(name, missing, n=1)
    return install_command(near[0]) if near else None


def page_of_kind(key: str) -> str | None:
    """Return the page for a key such as ``sink.jdbc.url``, which the kind's package names in ``PAGE``."""
    block, *names = key.replace("decode.key.", "decode.").split(".")
    group = {"sink": SINKS_GROUP, "sinks": SINKS_GROUP, "source": SOURCES_GROUP, "decode": FORMATS_GROUP}.get(block)
    name = next(iter(names[1:] if block == "sinks" else names), "")
    entry = None if group is None else installed_kinds(group).get(name)
    package = None if entry is None else sys.modules.get(entry.module.partition(".")[0])
    return getattr(package, "PAGE", None)


def missing_command(name: str) -> MissingExtra | None:
    """Return the error for a command whose extra is not installed; None if no extra of lakefeed has the command."""
    for extra, names in OF_EXTRAS.items():
        if name in names:
            return MissingExtra(f"the command {name} is not installed", hint=install_command(extra))
    return None


def extra_of_key(name: str) -> str | None:
    """Return the extra of lakefeed that adds a key to the pipeline file; None if no extra does."""
    return next((extra for extra, names in KEYS_OF_EXTRAS.items() if name in names), None)
