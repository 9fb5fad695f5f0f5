"""Deploy a pipeline: on Kubernetes, in a container image, by spark-submit."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.plugins import CliCommand

COMMANDS: Mapping[str, CliCommand] = {
    "deploy": CliCommand("lakefeed_deploy.cli:deploy", "Run a pipeline on Kubernetes or by spark-submit.", "deploy"),
}

PAGE = "deploy-on-kubernetes"
"""The documentation page that errors of this package link to."""
