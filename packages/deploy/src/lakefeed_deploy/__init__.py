"""Deploy a pipeline: on Kubernetes, in a container image, by spark-submit."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.plugins import CliCommand

COMMANDS: Mapping[str, CliCommand] = {
    "deploy": CliCommand("lakefeed_deploy.cli:deploy", "Run a pipeline on Kubernetes or by spark-submit.", "deploy"),
    "jars": CliCommand("lakefeed_deploy.jars_command:jars", "Fetch and verify the locked jars.", "servers"),
}

PAGE = "deploy-on-kubernetes"
"""The documentation page that errors of this package link to."""
