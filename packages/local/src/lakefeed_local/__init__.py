"""First steps, and commands for one machine: a pipeline file, servers, topics, a producer, the examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakefeed.plugins import CliCommand

if TYPE_CHECKING:
    from lakefeed_local.topics.topic import Topic as Topic

COMMANDS: Mapping[str, CliCommand] = {
    "init": CliCommand(
        "lakefeed_local.init_command:init", "Write a commented pipeline.yaml for a topic and its schema.", "begin"
    ),
    "docs": CliCommand(
        "lakefeed_local.docs_command:docs", "Print a page of the documentation, or open it in a browser.", "begin"
    ),
    "quickstart": CliCommand(
        "lakefeed_local.quickstart_command:quickstart", "Start servers, fill a topic, land and query it.", "begin"
    ),
    "examples": CliCommand(
        "lakefeed_local.examples:examples", "List the examples, and copy one to run and to change.", "begin"
    ),
    "topics": CliCommand(
        "lakefeed_local.topics.command:topics", "Create and fill topics, decode their records, profile them.", "look"
    ),
    "topics produce": CliCommand(
        "lakefeed_local.produce_command:produce", "Write rows from files, or generated ones, into a topic.", "look"
    ),
    "local": CliCommand(
        "lakefeed_local.local_command:local", "Start and stop servers here; examine this machine; a demo.", "servers"
    ),
    "completion": CliCommand(
        "lakefeed_local.completion:completion", "Complete commands and options in bash, zsh or fish.", "servers"
    ),
    "local demo": CliCommand(
        "lakefeed_local.demo_command:demo", "Run the taxi pipeline on the embedded stack, and verify it.", "servers"
    ),
}

JARS = ("lakefeed_encode/lakefeed-encode.jar", "lakefeed_local/lakefeed-local.jar")
PAGE = "quickstart"
"""The documentation page that errors of this package link to."""


def __getattr__(name: str) -> object:
    if name != "Topic":
        raise AttributeError(f"module 'lakefeed_local' has no attribute '{name}'")
    from lakefeed_local.topics.topic import Topic

    return Topic
