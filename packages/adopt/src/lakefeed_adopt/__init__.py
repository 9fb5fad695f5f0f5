"""Take over a table that another tool has written, and export a feed's offsets to another tool."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.plugins import CliCommand

COMMANDS: Mapping[str, CliCommand] = {
    "adopt": CliCommand("lakefeed_adopt.cli:adopt", "Continue a table where another tool has stopped.", "repair"),
    "offsets export": CliCommand(
        "lakefeed_adopt.cli:export", "Write a feed's position for a consumer group or Spark job.", "repair"
    ),
}

PAGE = "adopt"
"""The documentation page that errors of this package link to."""
