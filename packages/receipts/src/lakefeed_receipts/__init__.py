"""Give each commit a receipt of its rows' values, and compare the rows of a table with the receipts."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.plugins import CliCommand

COMMANDS: Mapping[str, CliCommand] = {
    "verify --content": CliCommand("lakefeed_receipts.cli:content", "Compare rows with the commits' receipts.", "look"),
    "verify --statement": CliCommand("lakefeed_receipts.cli:statement", "Check a signed statement.", "look"),
}
JARS = ("lakefeed_receipts/lakefeed-receipts.jar",)
PAGE = "verify"
