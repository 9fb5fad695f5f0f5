"""Take over a table from another tool, and export a feed's position to another tool."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.plugins import CliCommand

COMMANDS: Mapping[str, CliCommand] = {
    "adopt": CliCommand("lakefeed_adopt.cli:adopt", "Take a table over from another tool, without a gap.", "repair"),
    "offsets export": CliCommand(
        "lakefeed_adopt.cli:export", "Hand a feed's position to a consumer group or Spark job.", "repair"
    ),
}

PAGE = "adopt"
"""The documentation page that errors of this package link to."""
