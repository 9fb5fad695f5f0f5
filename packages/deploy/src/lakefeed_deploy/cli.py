"""``lakefeed deploy``: the group, and its commands ``size``, ``conf`` and ``image``."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

import lakefeed
from lakefeed.cli.options import FILE, FOLDER, master_option, output_option, pipeline_argument, set_option
from lakefeed.cli.output import emit, field_lines, say, size_text, styled, terminal_width
from lakefeed.clients.environment import default_environment, measured_throughput
from lakefeed.clients.spark.session import settings, with_own
from lakefeed.config import secrets
from lakefeed_deploy.image import BASE_IMAGE, ImageFiles, write_image_files
from lakefeed_deploy.kubernetes.manifest_command import manifest
from lakefeed_deploy.spark_submit.command import package, submit

if TYPE_CHECKING:
    from lakefeed_deploy.sizing import Sizing

SECRETS = (
    "Secrets are not printed. For S3, either set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in every process, or call "
    "lakefeed.session() in the application, which sends the keys to the executors."
)
LEFT_OUT = "not printed, because its value comes from ${…}: lakefeed run and lakefeed.session() set it"


@click.group()
def deploy() -> None:
    """Deploy a pipeline to Kubernetes, an image or a cluster."""


@click.command()
@pipeline_argument
@click.option("--target-rate", metavar="RATE", required=True, help="Records/time: 1_000_000/s, 112M/10min.")
@click.option("--measured", type=FILE, help="JSON result of lakefeed-bench throughput.  [default: its last result]")
@click.option("--topics", type=click.IntRange(1), help="Number of topics.  [default: as in the file]")
@click.option("--partitions", type=click.IntRange(1), help="Partitions of all topics.  [default: as needed]")
@set_option
@output_option
def size(
    pipeline: Path,
    target_rate: str,
    measured: Path | None,
    topics: int | None,
    partitions: int | None,
    overrides: tuple[str, ...],
) -> None:
    """Size the feed of PIPELINE for a rate of records.

    Prints partitions, executors, memory, batches, files and S3 requests. Computes them from the results of
    lakefeed-bench throughput, without a request to any server.
    """
    from lakefeed_deploy.sizing import FeedLoad, MachineSpeed, parse_rate, size

    rate = parse_rate(target_rate)
    config = lakefeed.Pipeline.from_file(pipeline, overrides=overrides).config
    load = FeedLoad.of(rate, config, topics=topics, partitions=partitions)
    found = size(load, MachineSpeed.read(measured or measured_throughput(), sink=config.sink.kind))
    emit(found.as_dict(), _size_lines(config.name, found))


def _size_lines(name: str, found: Sizing) -> Iterator[str]:
    yield styled(f"{name}: {found.rate:,.0f} records/s\n", bold=True)
    for figure in found.figures:
        number = f"{figure.value:,}" if figure.value == int(figure.value) else f"{figure.value:,.2f}"
        value = size_text(figure.value) if figure.unit == "B" else f"{number} {figure.unit}".rstrip()
        basis = textwrap.wrap(figure.rests_on, terminal_width(40, 140, less=40)) or [""]
        yield f"  {figure.name:<22}{value:>14}  {basis[0]}"
        for more in basis[1:]:
            yield " " * 40 + more
    yield ""
    for assumption in found.assumptions:
        yield from field_lines("assumes", assumption)
    for warning in found.warnings:
        yield from field_lines("warning", warning, colour="yellow")


@click.command()
@pipeline_argument
@click.option(
    "--no-pipeline",
    is_flag=True,
    help="Without a pipeline file: use store and catalogs of the environment, or of the local stack.",
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
    """Print the Spark settings for PIPELINE, without secrets.

    These are the settings of lakefeed's own sessions. If the master is not local, Spark sends the jars to executors.
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


@click.command()
@click.option("--to", type=FOLDER, default=Path("image"), show_default=True, help="The folder for the build.")
@click.option(
    "--base-image",
    default=BASE_IMAGE,
    show_default=True,
    metavar="IMAGE[@DIGEST]",
    help="A Debian image whose default Python is 3.11 or newer, and Java 17 or 21.",
)
@click.option(
    "--spark-image", metavar="IMAGE[@DIGEST]", help="The cluster's Spark image, which Dockerfile.spark extends."
)
@click.option(
    "--requirements",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Requirements file of pip with the packages that your transforms import.",
)
@output_option
def image(to: Path, base_image: str, spark_image: str | None, requirements: Path | None) -> None:
    """Write a Dockerfile, its files, and a bill of materials.

    The image has the versions of this lakefeed. Hashes fix the versions of Python packages and jars, and a digest fixes
    the base image. The image runs as user 185 with a read-only root, and accepts the commands of Spark's operators.
    Dockerfile.spark adds lakefeed to the cluster's own Spark image.
    """
    written = write_image_files(to, base_image=base_image, spark_image=spark_image, requirements=requirements)
    document = {
        "folder": str(written.folder),
        "files": list(written.files),
        "base_image": written.base_image,
        "pinned": written.is_pinned,
        "spark": written.spark,
    }
    emit(document, _lines(written))


def _lines(written: ImageFiles) -> Iterator[str]:
    for name in written.files:
        yield f"  {written.folder / name}"
    if not written.is_pinned:
        tag = written.base_image
        yield f"\nThe base image {tag} has no digest, so a later build may use another image. Set its digest:"
        yield f"  docker buildx imagetools inspect {tag}"
        yield f"  lakefeed deploy image --base-image {tag}@sha256:…"
    yield f"\nBuild it: docker build --tag lakefeed {shlex.quote(str(written.folder))}"


for command in (size, manifest, image, submit, package, conf):
    deploy.add_command(command)
