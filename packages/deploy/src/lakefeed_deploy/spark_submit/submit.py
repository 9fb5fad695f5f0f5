"""Call spark-submit for a pipeline, with Spark's properties and the driver's variables.

Checks run before the call, so that mistakes are reported here and not in a worker's log.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lakefeed.clients.http import TIMEOUT_SECONDS, exchange
from lakefeed.clients.spark import cluster
from lakefeed.config import secrets
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.problem import Problem, raise_first_error
from lakefeed.errors import ConfigError, JobFailed, ResourceMissing, WorldError
from lakefeed.operations.preflight.connect import preflight
from lakefeed_deploy.spark_submit.application import MAIN_CLASS, PIPELINE_FOLDER

# Spark's processes read the cluster's secret from this variable, so that no setting contains it.
_SECRET_VARIABLE = "_SPARK_AUTH_SECRET"  # noqa: S105 (a name)
_DRIVER_ID = re.compile(r"\bdriver-\d{14}-\d+\b")
_DRIVER_STATE = re.compile(r"State of driver-\S+ is (\w+)")
# Lines of spark-submit's output that are not shown: of a Java stack trace, and a warning at every start.
_NOISE = re.compile(r"^\s+(at |\.\.\. )|WARN NativeCodeLoader")
_MASTER = re.compile(r"(spark|k8s)://.+|yarn|local(\[.*\])?")
_PACKAGE = "write one: lakefeed deploy package"


def find_mistakes(config: PipelineConfig, connections: Connections) -> list[Problem]:
    """Check the servers as the driver will; return warnings about problems that only this machine may have.

    Raises:
        LakefeedError: the driver would be refused.
    """
    problems = preflight(config, connections=connections, tables=True)
    for at, problem in enumerate(problems):
        # Only this machine may have the problem: on the driver's machine, the network and AWS keys may differ.
        if problem.severity == "error" and (issubclass(problem.error, WorldError) or problem.key == "s3"):
            problems[at] = replace(problem, severity="warning", hint="the driver repeats this check on the cluster")
    raise_first_error(problems)
    return problems


def locate(application: str, file: Path, *, cluster_mode: bool) -> str:
    """Return the path or URL of an application jar for spark-submit, after a check of the jar.

    Args:
        application: a path or a URL.
        file: the pipeline file, which the jar must contain.
        cluster_mode: whether workers fetch the jar; otherwise this machine fetches it.

    Raises:
        ResourceMissing: the jar does not exist.
        ConfigError: the file is not an application jar, or contains another pipeline.
    """
    try:
        parts = urlsplit(application)
    except ValueError as error:
        raise _no_url(application, error) from None
    if parts.scheme in ("http", "https"):
        _require_answer(application)
        return application
    if parts.scheme not in ("", "file"):
        return application  # Spark fetches the jar through Hadoop, for example from hdfs or s3a.
    path = Path(unquote(parts.path) if parts.scheme else application).absolute()
    if path.is_file():
        _require_same_pipeline(path, file)
    elif not (cluster_mode and parts.scheme):  # A file: URL may name a file that only the workers have.
        raise ResourceMissing("there is no application jar", where=str(path), hint=_PACKAGE)
    return path.as_uri() if cluster_mode else str(path)


def _require_answer(url: str) -> None:
    """Raise an error if a server answers the URL with 404; accept a URL that only the workers may be able to reach."""
    try:
        status = exchange("HEAD", url, seconds=TIMEOUT_SECONDS, headers={}).status
    except (OSError, ssl.SSLError, http.client.HTTPException):
        return
    except ValueError as error:
        raise _no_url(url, error) from None
    if status in (404, 410):
        raise ResourceMissing(f"there is no application jar (HTTP status {status})", where=url, hint=_PACKAGE)


def _no_url(url: str, error: ValueError) -> ConfigError:
    hint = "give the path of a jar, or a URL such as https://host/trips.jar"
    return ConfigError(f"this is not a valid URL: {error}", where=url, hint=hint)


def _require_same_pipeline(jar: Path, file: Path) -> None:
    try:
        with zipfile.ZipFile(jar) as archive:
            packed = archive.read(f"{PIPELINE_FOLDER}/{file.name}")
    except (zipfile.BadZipFile, KeyError):
        what = f"this is not an application jar with {file.name}"
        raise ConfigError(what, where=str(jar), hint=_PACKAGE) from None
    if packed != file.read_bytes():
        what = f"the application jar has another {file.name} than {file}"
        hint = f"lakefeed deploy package {file} --to {jar}; the variables come from the file on this machine"
        raise ConfigError(what, where=str(jar), hint=hint)


class Variables(Mapping[str, str]):
    """An environment that records which variables a pipeline reads."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.used: set[str] = {name for name in environment if name.startswith("AWS_")}

    def __getitem__(self, name: str) -> str:
        value = self._environment[name]
        self.used.add(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._environment)

    def __len__(self) -> int:
        return len(self._environment)

    def found(self) -> dict[str, str]:
        return {name: self._environment[name] for name in sorted(self.used) if name in self._environment}


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One call of spark-submit.

    Attributes:
        arguments: the arguments after ``--properties-file FILE``.
        properties: Spark settings without secrets.
        variables: the driver's variables, with their values.
        master: the cluster's master URL.
        is_cluster_mode: whether the driver runs on the cluster, where it gets only these variables.
    """

    arguments: tuple[str, ...]
    properties: Mapping[str, str]
    variables: Mapping[str, str]
    master: str
    is_cluster_mode: bool

    def command(self, properties_file: str) -> list[str]:
        """Return the command line, which contains no secret."""
        return [str(spark_submit()), "--properties-file", properties_file, *self.arguments]

    def run(self) -> str | None:
        """Run spark-submit to its end; in cluster mode return the id of the driver, which still runs on the cluster."""
        with tempfile.NamedTemporaryFile("w", prefix="lakefeed-", suffix=".properties") as file:
            # Only this user can read the file. Escape backslashes and line breaks as java.util.Properties requires.
            escaped = {key: value.replace("\\", "\\\\").replace("\n", "\\n") for key, value in self.properties.items()}
            file.writelines(f"{key} {value}\n" for key, value in escaped.items())
            file.flush()
            done = subprocess.run(
                self.command(file.name),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE if self.is_cluster_mode else None,
                text=True,
                errors="replace",
                check=False,
            )
        if not self.is_cluster_mode:
            if done.returncode:
                raise SystemExit(done.returncode)  # The driver's output, which is shown above, has the reason.
            return None
        driver, state = _DRIVER_ID.search(done.stderr), _DRIVER_STATE.search(done.stderr)
        if done.returncode or (state and state[1] in ("ERROR", "FAILED", "KILLED")):
            lines = [line for line in done.stderr.splitlines() if line.strip() and not _NOISE.search(line)]
            what = "the cluster has not started the driver:" + "".join(f"\n  | {line}" for line in lines[-6:])
            hint = "read the driver's log on its worker: work/driver-…/stderr"
            raise JobFailed(what, where=self.master, hint=hint)
        # The log4j configuration of spark-submit may suppress the line with the driver's id.
        return driver[0] if driver else "the driver"

    def _environment(self) -> dict[str, str]:
        if not self.is_cluster_mode:
            return {**os.environ, **self.variables}
        # Spark sends the whole environment to the worker, so it may contain only the pipeline's variables.
        java = f"{home}/bin:" if (home := os.environ.get("JAVA_HOME")) else ""
        return {"PATH": f"{java}{os.environ.get('PATH', os.defpath)}", **self.variables}


def submission(
    config: PipelineConfig,
    variables: Variables,
    *,
    master: str,
    application: str,
    cluster_mode: bool = False,
    supervise: bool = False,
    arguments: Sequence[str] = (),
) -> Submission:
    """Return the call of spark-submit for an application jar.

    Args:
        config: the pipeline's settings.
        variables: the environment from which the settings were read.
        master: the cluster's master URL.
        application: the jar's path, or in cluster mode a URL that all workers can read.
        cluster_mode: run the driver on the cluster.
        supervise: let the cluster restart a failed driver.
        arguments: arguments of ``lakefeed run``.

    Raises:
        ConfigError: the master does not support these options, or the cluster's secret is missing.
    """
    _require_possible(config, master, cluster_mode=cluster_mode, supervise=supervise)
    cluster.require_hadoop_configuration(master)
    own = {key: _text(value) for key, value in config.spark.items()}
    whole = cluster.require_secret({"spark.master": master, **cluster.secured(master), **own})
    properties = {key: value for key, value in secrets.shown(whole).items() if key != "spark.master"}
    # Spark's web pages and logs hide secrets by their keys, as in lakefeed's own sessions.
    properties.setdefault("spark.redaction.regex", secrets.pattern(secrets.keys_of(config)))
    if not cluster_mode:
        # The driver runs with this Python, because the jar's packages are for its version; spark.pyspark.python is the
        # workers'.
        properties.setdefault("spark.pyspark.driver.python", sys.executable)
    if master == "yarn":
        # Because the main class is a Java class, Spark would not send PySpark to the executors.
        properties.setdefault("spark.yarn.isPython", "true")
        # ``secrets.shown`` has removed these settings, because their keys look like those of secrets: add them again.
        properties |= cluster.NO_KEYS_ON_NODES
    sent = variables.found()
    if secret := whole.get(cluster.AUTHENTICATION_SECRET):
        sent[_SECRET_VARIABLE] = secret
    mode = "cluster" if cluster_mode else "client"
    options = ["--master", master, "--deploy-mode", mode, "--name", config.name, "--class", MAIN_CLASS]
    return Submission(
        arguments=(*options, *(["--supervise"] if supervise else []), application, *arguments),
        properties=properties,
        variables=sent,
        master=master,
        is_cluster_mode=cluster_mode,
    )


def _require_possible(config: PipelineConfig, master: str, *, cluster_mode: bool, supervise: bool) -> None:
    if not _MASTER.fullmatch(master):
        hint = "write spark://HOST:PORT, k8s://URL or yarn"
        raise ConfigError(f"'{master}' is not a master of Spark", where="--master", hint=hint)
    is_standalone = master.startswith("spark://")
    if supervise and not (is_standalone and cluster_mode):
        what = "only a standalone cluster in cluster mode can supervise a driver"
        hint = "on Kubernetes use the restart policy, on YARN spark.yarn.maxAppAttempts"
        raise ConfigError(what, where="--supervise", hint=hint)
    if cluster_mode and not is_standalone:
        what = f"on {master}, Spark would show the pipeline's variables, which a driver in cluster mode needs"
        hint = "on Kubernetes: lakefeed deploy manifest, with secrets by reference; on YARN: client mode"
        raise ConfigError(what, where="--deploy-mode cluster", hint=hint)


def spark_submit() -> Path:
    """Return the path of spark-submit: in ``SPARK_HOME``, or else in the installed PySpark."""
    from pyspark.find_spark_home import _find_spark_home

    path = Path(_find_spark_home()) / "bin" / "spark-submit"  # type: ignore[no-untyped-call]
    if shutil.which(path) is None:
        raise ConfigError(
            "there is no spark-submit", where=str(path), hint="set SPARK_HOME to an installation of Spark"
        )
    return path


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
