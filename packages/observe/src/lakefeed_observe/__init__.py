"""Report a run to users and other systems: notifications, OpenLineage events, OTLP metrics, pages of runs."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.plugins import CliCommand

COMMANDS: Mapping[str, CliCommand] = {
    "metrics": CliCommand(
        "lakefeed_observe.metrics.command:metrics", "List the metrics; write a Grafana dashboard and alerts.", "watch"
    ),
    "notify": CliCommand(
        "lakefeed_observe.notify.cli:notify", "Try the webhooks, mailboxes and commands of a feed.", "watch"
    ),
    "runs": CliCommand("lakefeed_observe.runs.cli:runs", "Show what the runs of a feed did.", "watch"),
}
