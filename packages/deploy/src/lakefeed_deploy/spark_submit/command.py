"""``lakefeed deploy submit`` and ``lakefeed deploy package``: run a pipeline on a cluster that has no lakefeed."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

import lakefeed
from lakefeed.cli.options import FOLDER, output_option, pipeline_argument, set_option
from lakefeed.cli.output import echo, emit, size_text
from lakefeed.clients.environment import default_environment
from lakefeed_deploy.spark_submit.submitted import SUPERVISED

if TYPE_CHECKING:
    from lakefeed_deploy.spark_submit.submit import Submission


@click.command()
@pipeline_argument
@click.option(
    "--to", "target", type=click.Path(path_type=Path), default=".", help="Path of the jar, or its folder. [default: .]"
)
@set_option
@output_option
def package(pipeline: Path, target: Path, overrides: tuple[str, ...]) -> None:
    """Write the application jar of a pipeline.

    The jar contains Python packages, jars, the pipeline file and its functions, but no secret. The cluster needs Spark
    and the same Python version.
    """
    from lakefeed_deploy.spark_submit.application import write_application

    declared = lakefeed.Pipeline.from_file(pipeline, overrides=overrides)
    written = write_application(pipeline, declared.config, declared.connections, target)
    size = written.stat().st_size
    emit({"application": str(written), "bytes": size}, f"{written} ({size_text(size)})")


@click.command()
@pipeline_argument
@click.argument("arguments", nargs=-1, metavar="[-- OPTIONS OF lakefeed run]")
@click.option("--master", required=True, help="spark://HOST:PORT, yarn or k8s://URL.")
@click.option(
    "--deploy-mode",
    type=click.Choice(["client", "cluster"]),
    default="client",
    show_default=True,
    help="Run the driver here, or on the cluster.",
)
@click.option("--supervise", is_flag=True, help="Let a standalone cluster restart the driver if it fails.")
@click.option("--stage", type=FOLDER, help="Put the application jar into this folder, which all workers share.")
@click.option("--application", metavar="URL", help="URL of a jar that lakefeed deploy package has written.")
@click.option(
    "--check/--no-check",
    "is_checked",
    default=True,
    help="In cluster mode, first run lakefeed check --connect on this machine.  [default: check]",
)
@click.option("--print", "only_print", is_flag=True, help="Only print the command.")
@output_option
def submit(
    pipeline: Path,
    arguments: tuple[str, ...],
    master: str,
    deploy_mode: str,
    supervise: bool,
    stage: Path | None,
    application: str | None,
    is_checked: bool,
    only_print: bool,
) -> None:
    """Run a pipeline with spark-submit.

    Calls the spark-submit of SPARK_HOME, or else of the installed PySpark. The driver gets the variables that the
    pipeline file names through its environment, never on a command line. In client mode the command ends with the run's
    exit status; in cluster mode it ends once the driver runs. In cluster mode the command first checks the file's
    servers as the driver will, and submits nothing if the check fails; a server that this machine cannot reach is only
    a warning.

    With --supervise, a failed driver waits before it ends, twice as long after every failure, up to five minutes. Then
    the cluster restarts it.
    """
    from lakefeed_deploy.spark_submit.application import write_application
    from lakefeed_deploy.spark_submit.submit import Variables, find_mistakes, locate, submission

    in_cluster = deploy_mode == "cluster"
    if application and stage:
        raise click.UsageError("--application names an existing jar: use it without --stage")
    if in_cluster and not (application or stage):
        raise click.UsageError("in cluster mode the workers fetch the application jar: give --stage or --application")
    if application is not None:
        application = locate(application, pipeline, cluster_mode=in_cluster)
    if supervise:
        # If a replaced driver failed, the cluster would restart it, and it would replace its successor; so it ends with
        # status 0. The user's arguments come later, so they can override this one.
        arguments = ("--exit-when-replaced", "0", *arguments)
    variables = Variables(default_environment())
    # Refuse unknown options of lakefeed run before anything is built or started.
    declared = lakefeed.Pipeline.from_file(pipeline, overrides=_overrides(arguments), environment=variables)
    with tempfile.TemporaryDirectory(prefix="lakefeed-") as temporary:
        place = application or f"{stage or temporary}/lakefeed-{declared.config.name}.jar"

        def submission_of(jar: str) -> Submission:
            return submission(
                declared.config,
                variables,
                master=master,
                application=jar,
                cluster_mode=in_cluster,
                supervise=supervise,
                arguments=((SUPERVISED,) if supervise else ()) + arguments,
            )

        planned = submission_of(place)
        if only_print:
            _print(planned)
            return
        if in_cluster and is_checked:
            for problem in find_mistakes(declared.config, declared.connections):
                echo(str(problem), err=True)
        if application is None:
            target = (stage or Path(temporary)).absolute()
            jar = write_application(pipeline, declared.config, declared.connections, target)
            echo(f"the application is {jar} ({size_text(jar.stat().st_size)})", err=True)
            planned = submission_of(jar.as_uri() if in_cluster else str(jar))
        driver = planned.run()
    if driver is not None:
        document = {"driver": driver, "master": master}
        emit(document, f"{driver} runs on {master}; its log is on its worker, in work/{driver}/stderr")


def _overrides(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of --set among the arguments of lakefeed run; raise a usage error for an unknown option."""
    from lakefeed.cli.run import run

    context = run.make_context("lakefeed run", ["pipeline.yaml", *arguments], resilient_parsing=False)
    if context.params["master"] is not None:
        raise click.UsageError("--master belongs before --: spark-submit connects to it")
    overrides: tuple[str, ...] = context.params["overrides"]
    return overrides


def _print(planned: Submission) -> None:
    command = shlex.join(planned.command("FILE"))
    document = {
        "command": planned.command("FILE"),
        "properties": dict(planned.properties),
        "variables": sorted(planned.variables),
    }

    def text() -> Iterator[str]:
        yield command
        yield "\nFILE:"
        for key, value in planned.properties.items():
            yield f"  {key} {value}"
        yield "\nvariables of the driver: " + (", ".join(sorted(planned.variables)) or "none")

    emit(document, text())
