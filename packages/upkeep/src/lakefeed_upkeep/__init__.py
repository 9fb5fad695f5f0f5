"""Compact Iceberg tables, expire snapshots, remove orphans, and publish branches."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.plugins import CliCommand

COMMANDS: Mapping[str, CliCommand] = {
    "tables": CliCommand(
        "lakefeed_upkeep.commands:tables", "Show the health of tables; maintain and publish them.", "tables"
    ),
}
JARS = ("lakefeed_upkeep/lakefeed-upkeep.jar",)
PAGE = "upkeep"
"""The documentation page that errors of this package link to."""
