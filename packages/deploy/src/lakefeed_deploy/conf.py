"""``lakefeed deploy conf``: the Spark settings, for spark-submit and spark-defaults.conf."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from lakefeed.cli.options import master_option, output_option, pipeline_argument, set_option
from lakefeed.cli.output import emit, say
from lakefeed.clients.environment import default_environment
from lakefeed.clients.spark.session import settings, with_own
from lakefeed.config import secrets

SECRETS = (
    "Secrets are not printed. The S3 keys: give every process AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
    "call lakefeed.session() in the application, which passes them on."
)
LEFT_OUT = "its value is a secret, since it comes from ${…}: lakefeed run and lakefeed.session() set it"


@click.command()
@pipeline_argument
@click.option(
    "--no-pipeline", is_flag=True, help="No file: for the store and catalogs of the environment, or of the local stack."
)
@master_option
@set_option
@click.option(
    "--format",
    "style",
    type=click.Choice(["properties", "arguments"]),
    default="properties",
    show_default=True,
    help="A spark-defaults.conf, or arguments for spark-submit.",
)
@output_option
def conf(pipeline: Path, no_pipeline: bool, master: str | None, overrides: tuple[str, ...], style: str) -> None:
    """Print the Spark settings that lakefeed uses for PIPELINE, without any secret.

    With a master that is not local, they ship the jars.
    """
    notes = [SECRETS]
    if no_pipeline:
        printed = settings(master=master)
    else:
        from lakefeed.config.loading.load import load

        environment = default_environment()
        config = load(pipeline, overrides=overrides, environment=environment)
        shown, connections = secrets.shown(config.spark), config.connections(environment)
        printed = settings(config.name, connections=connections, master=master, secret_keys=secrets.keys_of(config))
        printed = with_own(printed, {key: str(value) for key, value in shown.items()})
        notes += [f"{key}: {LEFT_OUT}" for key in sorted(config.spark.keys() - shown.keys())]

    def text() -> Iterator[str]:
        if style == "arguments":
            say(f"# {note}" for note in notes)
            yield " ".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in printed.items())
        else:
            yield from (f"# {note}" for note in notes)
            yield from (f"{key} {value}" for key, value in printed.items())

    emit(printed, text())
