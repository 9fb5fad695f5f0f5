"""``lakefeed deploy conf``: the Spark settings, for spark-submit and spark-defaults.conf."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click

from lakefeed.cli.options import FILE
from lakefeed.cli.output import echo
from lakefeed.clients.environment import default_environment
from lakefeed.clients.spark.session import settings, with_own
from lakefeed.config import secrets

SECRETS = (
    "Secrets are not printed. The S3 keys: give every process AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
    "call lakefeed.session() in the application, which passes them on."
)
LEFT_OUT = "its value is a secret, since it comes from ${…}: lakefeed run and lakefeed.session() set it"


@click.command()
@click.argument("pipeline", type=FILE, required=False)
@click.option("--master", help="Spark master; anything but local ships the jars.  [default: local[*]]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a pipeline setting.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["properties", "arguments", "json"]),
    default="properties",
    show_default=True,
    help="A spark-defaults.conf, arguments for spark-submit, or JSON.",
)
def conf(pipeline: Path | None, master: str | None, overrides: tuple[str, ...], style: str) -> None:
    """Print the Spark settings that lakefeed uses, without any secret.

    With a pipeline file, for its store, catalogs and Spark settings; else for those of the environment or of
    the local stack that is running.
    """
    notes = [] if style == "json" else [SECRETS]
    if pipeline is None:
        printed = settings(master=master)
    else:
        from lakefeed.config.loading.load import load

        environment = default_environment()
        config = load(pipeline, overrides=overrides, environment=environment)
        shown, connections = secrets.shown(config.spark), config.connections(environment)
        printed = settings(config.name, connections=connections, master=master, secret_keys=secrets.keys_of(config))
        printed = with_own(printed, {key: str(value) for key, value in shown.items()})
        notes += [f"{key}: {LEFT_OUT}" for key in sorted(config.spark.keys() - shown.keys())]
    if style == "json":
        echo(json.dumps(printed, indent=2))
    elif style == "arguments":
        echo(" ".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in printed.items()))
    for note in notes:
        echo(f"# {note}", err=style != "properties")
    if style == "properties":
        for key, value in printed.items():
            echo(f"{key} {value}")
