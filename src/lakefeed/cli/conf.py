"""``lakefeed conf``: the Spark settings, for spark-submit and spark-defaults.conf."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click

SECRETS = (
    "Secrets are not printed. The S3 keys: give every process AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
    "call lakefeed.session() in the application, which passes them on."
)


@click.command()
@click.argument("pipeline", type=click.Path(path_type=Path, dir_okay=False), required=False)
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
    from lakefeed.session import settings, with_own

    if pipeline is None:
        printed = settings(master=master)
    else:
        from lakefeed.pipeline import Pipeline

        declared = Pipeline.from_file(pipeline, overrides=overrides)
        printed = settings(declared.config.name, connections=declared.connections, master=master)
        printed = with_own(printed, {key: str(value) for key, value in declared.config.spark.items()})
    if style == "json":
        click.echo(json.dumps(printed, indent=2))
    elif style == "arguments":
        click.echo(" ".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in printed.items()))
        click.echo(f"# {SECRETS}", err=True)
    else:
        click.echo(f"# {SECRETS}")
        for key, value in printed.items():
            click.echo(f"{key} {value}")
