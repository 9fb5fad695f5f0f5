"""Operate feeds: pause and move them, land old records, and replay dead letters."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.plugins import CliCommand

COMMANDS: Mapping[str, CliCommand] = {
    "backfill": CliCommand(
        "lakefeed_repair.feed_commands:backfill", "Land old records that the feed will never read.", "run"
    ),
    "feed": CliCommand(
        "lakefeed_repair.feed_commands:feed", "Pause, resume, stop or change a feed; rehearse a new file.", "repair"
    ),
    "offsets rewind": CliCommand("lakefeed_repair.feed_commands:rewind", "Move a feed to other offsets.", "repair"),
    "dead-letters": CliCommand(
        "lakefeed_repair.dead_letters_commands:dead_letters",
        "Show, replay or drop records that could not become rows.",
        "repair",
    ),
}
PAGE = "operate"
"""The documentation page that errors of this package link to."""
