"""Checks before a pipeline is sent to a cluster: a mistake is reported here, not in the log of a worker."""

from __future__ import annotations

import http.client
import ssl
import zipfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lakefeed.clients.http import TIMEOUT_SECONDS, exchange
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.problem import Problem, raise_first_error
from lakefeed.errors import ConfigError, ResourceMissing, WorldError
from lakefeed.operations.preflight.connect import preflight
from lakefeed_deploy.spark_submit.application import PIPELINE_FOLDER

_PACKAGE = "lakefeed deploy package writes one"


def find_mistakes(config: PipelineConfig, connections: Connections) -> list[Problem]:
    """Ask servers as the driver will; return what only its machine can answer, as warnings.

    Raises:
        LakefeedError: the driver would be refused.
    """
    problems = [_from_here(problem) for problem in preflight(config, connections=connections, tables=True)]
    raise_first_error(problems)
    return problems


def _from_here(problem: Problem) -> Problem:
    """Return a problem as a warning if the driver's machine may not have it: the network, or AWS's keys, differ."""
    if problem.severity == "error" and (issubclass(problem.error, WorldError) or problem.key == "s3"):
        return replace(problem, severity="warning", hint="the driver asks again, from the cluster")
    return problem


def locate(application: str, file: Path, *, cluster_mode: bool) -> str:
    """Return an application jar as spark-submit takes it, after a look at it.

    Args:
        application: a path or a URL.
        file: the pipeline file that was read for its variables: the jar has to have the same.
        cluster_mode: workers fetch the jar; otherwise this machine does.

    Raises:
        ResourceMissing: there is none.
        ConfigError: it is no application jar, or one with another pipeline.
    """
    try:
        parts = urlsplit(application)
    except ValueError as error:
        raise ConfigError(f"this is no address: {error}", where=application) from None
    if parts.scheme in ("http", "https"):
        _require_answer(application)
        return application
    if parts.scheme not in ("", "file"):
        return application  # Spark fetches it through Hadoop: hdfs, s3a.
    path = Path(unquote(parts.path) if parts.scheme else application).absolute()
    if path.is_file():
        _require_same_pipeline(path, file)
    elif not (cluster_mode and parts.scheme):  # A URL may name a file that only workers have.
        raise ResourceMissing("there is no application jar", where=str(path), hint=_PACKAGE)
    return path.as_uri() if cluster_mode else str(path)


def _require_answer(url: str) -> None:
    """Refuse an address that has no file; one that cannot be reached from here may be the workers' alone."""
    try:
        status = exchange("HEAD", url, seconds=TIMEOUT_SECONDS, headers={}).status
    except (OSError, ssl.SSLError, http.client.HTTPException):
        return
    except ValueError as error:
        raise ConfigError(f"this is no address: {error}", where=url) from None
    if status in (404, 410):
        raise ResourceMissing(f"there is no application jar (HTTP status {status})", where=url, hint=_PACKAGE)


def _require_same_pipeline(jar: Path, file: Path) -> None:
    try:
        with zipfile.ZipFile(jar) as archive:
            packed = archive.read(f"{PIPELINE_FOLDER}/{file.name}")
    except (zipfile.BadZipFile, KeyError):
        what = f"this is no application jar with {file.name}"
        raise ConfigError(what, where=str(jar), hint=_PACKAGE) from None
    if packed != file.read_bytes():
        what = f"the application jar has another {file.name} than {file}"
        hint = f"lakefeed deploy package {file} --to {jar}; variables and settings are read from the file here"
        raise ConfigError(what, where=str(jar), hint=hint)
