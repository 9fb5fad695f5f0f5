"""``lakefeed deploy``: its commands."""

from __future__ import annotations

import click

from lakefeed_deploy.conf import conf
from lakefeed_deploy.image.command import image
from lakefeed_deploy.kubernetes.manifest_command import manifest
from lakefeed_deploy.size_command import size
from lakefeed_deploy.spark_submit.command import package, submit


@click.group()
def deploy() -> None:
    """Run a pipeline elsewhere: on Kubernetes, in a container image, on a Spark cluster by spark-submit."""


for command in (size, manifest, image, submit, package, conf):
    deploy.add_command(command)
