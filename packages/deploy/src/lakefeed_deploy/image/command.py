"""``lakefeed deploy image``: write Dockerfiles and a bill of materials."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from lakefeed.cli.options import FOLDER, output_option
from lakefeed.cli.output import emit
from lakefeed_deploy.image import BASE_IMAGE, ImageFiles, write_image_files


@click.command()
@click.option("--to", type=FOLDER, default=Path("image"), show_default=True, help="The folder for the build.")
@click.option(
    "--base-image",
    default=BASE_IMAGE,
    show_default=True,
    metavar="IMAGE[@DIGEST]",
    help="A Debian image whose default packages are Python from 3.11 on and Java 17 or 21.",
)
@click.option(
    "--spark-image", metavar="IMAGE[@DIGEST]", help="The cluster's own image with Spark, for Dockerfile.spark."
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
