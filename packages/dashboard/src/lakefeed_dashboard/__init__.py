"""The dashboard: one feed or many, in a browser or in a terminal, with actions for operators."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.plugins import CliCommand

COMMANDS: Mapping[str, CliCommand] = {
    "top": CliCommand("lakefeed_dashboard.command:top", "Show all feeds of this user on one live screen.", "watch"),
    "dashboard": CliCommand("lakefeed_dashboard.command:dashboard", "Show many feeds in a browser.", "watch"),
}
JARS = ("lakefeed_dashboard/lakefeed-dashboard.jar",)
PAGE = "dashboard"
