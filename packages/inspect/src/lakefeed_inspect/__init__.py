"""Read chosen records of topics once, and compare the schemas of registry and table."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.plugins import CliCommand

COMMANDS: Mapping[str, CliCommand] = {
    "read": CliCommand("lakefeed_inspect.read_command:read", "Read records once, and show them or write them.", "run"),
    "schema": CliCommand(
        "lakefeed_inspect.schema_command:schema", "Compare the registry's schema with the table's.", "look"
    ),
}
JARS = ("lakefeed_inspect/lakefeed-inspect.jar",)
PAGE = "read-and-backfill"
"""The documentation page that errors of this package link to."""
