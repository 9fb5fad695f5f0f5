"""Work on one machine: the embedded stack, a producer, the quickstart, the demo, the examples."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.plugins import CliCommand

COMMANDS: Mapping[str, CliCommand] = {
    "quickstart": CliCommand(
        "lakefeed_local.quickstart_command:quickstart",
        "Start servers, fill a topic, land and query it.",
        "begin",
    ),
    "demo": CliCommand(
        "lakefeed_local.demo_command:demo", "Run the main job on the embedded stack, and verify it.", "begin"
    ),
    "examples": CliCommand(
        "lakefeed_local.examples_command:examples", "List the examples, and copy one to run and to change.", "begin"
    ),
    "local": CliCommand(
        "lakefeed_local.local_command:local", "Start and stop Kafka, registry, S3 store and catalog here.", "servers"
    ),
    "produce": CliCommand(
        "lakefeed_local.produce_command:produce", "Write rows from files, or generated ones, into a topic.", "servers"
    ),
}

PAGE = "local-stack"
"""The page of the documentation that errors of this package name."""
