"""Test a pipeline file with cases, which need no broker, registry or store."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.plugins import CliCommand

COMMANDS: Mapping[str, CliCommand] = {
    "test": CliCommand("lakefeed_testing.cli:test", "Run the test cases of a pipeline; asks no server.", "run"),
}
JARS = ("lakefeed_encode/lakefeed-encode.jar",)
PAGE = "test-a-pipeline"
"""The documentation page that errors of this package link to."""
