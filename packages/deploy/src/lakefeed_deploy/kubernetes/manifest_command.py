"""``lakefeed deploy manifest``: print the Kubernetes objects of a feed or of a producer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from lakefeed.cli.options import FOLDER, options_of, pipeline_argument, set_option
from lakefeed.cli.output import echo
from lakefeed_deploy.commands import load_command

if TYPE_CHECKING:
    from lakefeed_deploy.kubernetes.application import Application
    from lakefeed_deploy.kubernetes.objects import Operator

Style = Literal["yaml", "kustomize", "helm-values"]
_FEED = "run"

_manifest_options = options_of(
    set_option,
    click.option(
        "--operator",
        type=click.Choice(["apache", "kubeflow"]),
        default="apache",
        show_default=True,
        help="Apache's operator (spark.apache.org/v1), or Kubeflow's (sparkoperator.k8s.io/v1beta2).",
    ),
    click.option(
        "--format",
        "style",
        type=click.Choice(["yaml", "kustomize", "helm-values"]),
        default="yaml",
        show_default=True,
        help="Objects for kubectl apply -f -; a Kustomize folder; or values for the operator's own chart.",
    ),
    click.option("--directory", type=FOLDER, help="With kustomize: the folder to write. Existing overlays stay."),
)


class _FeedByDefault(click.Group):
    """Adds the default command: ``lakefeed deploy manifest FILE`` means ``lakefeed deploy manifest run FILE``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [_FEED, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_FeedByDefault)
def manifest() -> None:
    """Print the Kubernetes objects of a pipeline.

    The block deploy.kubernetes of the pipeline file describes the objects. The command run may be omitted: lakefeed
    deploy manifest pipeline.yaml. Sends no request to a cluster or broker. Reads the file with the variables of the
    pod, not with those of this machine. Objects refer to secrets by name; a file with a secret in plain text is
    refused.
    """


@manifest.command(_FEED)
@pipeline_argument
@_manifest_options
def feed(pipeline: Path, overrides: tuple[str, ...], operator: Operator, style: Style, directory: Path | None) -> None:
    """Print the objects of a driver that runs PIPELINE. A failed driver is restarted."""
    from lakefeed_deploy.kubernetes.application import read_feed

    _print(lambda: read_feed(pipeline, overrides=overrides), operator, style, directory)


@manifest.command()
@pipeline_argument
@_manifest_options
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def produce(
    pipeline: Path,
    overrides: tuple[str, ...],
    operator: Operator,
    style: Style,
    directory: Path | None,
    arguments: tuple[str, ...],
) -> None:
    """Print the objects that run lakefeed topics produce, with the pods that PIPELINE's block describes.

    ARGUMENTS are the arguments of lakefeed topics produce; write -- before them:

    lakefeed deploy manifest produce pipeline.yaml -- TOPIC --file s3a://bucket/trips.csv
    """
    from lakefeed_deploy.kubernetes.application import read_producer

    given = load_command("topics produce").make_context("lakefeed topics produce", list(arguments)).params
    _refuse_local_files(given)

    def read() -> Application:
        return read_producer(
            pipeline, overrides=overrides, arguments=arguments, topic=given["topic"], is_stream=given["stream"]
        )

    _print(read, operator, style, directory)


def _refuse_local_files(given: dict[str, Any]) -> None:
    from lakefeed.errors import ConfigError

    path = given["path"]
    if path is not None and "://" not in path:
        hint = "put the file into a store, and name its address: s3a://bucket/path"
        raise ConfigError("the pods cannot read a file of this machine", where=f"--file {path}", hint=hint)
    for option in ("schema_file", "log_file", "master"):
        if given[option] is not None:
            name = f"--{option.replace('_', '-')}"
            hint = "register the schema, and remove the option" if option == "schema_file" else "remove it"
            raise ConfigError(f"{name} has no effect in the pods", where="produce", hint=hint)


def _print(read: Callable[[], Application], operator: Operator, style: Style, directory: Path | None) -> None:
    from lakefeed_deploy.kubernetes import output

    if (style == "kustomize") != (directory is not None):
        raise click.UsageError("--format kustomize and --directory belong together: it writes several files")
    app = read()
    for note in app.notes:
        echo(note, err=True)
    if directory is not None:
        for path in output.write_folder(output.kustomize(app, operator), directory):
            echo(str(directory / path))
    elif style == "helm-values":
        click.echo(output.helm_values(app, operator), nl=False)
    else:
        click.echo(output.manifest(app, operator), nl=False)
