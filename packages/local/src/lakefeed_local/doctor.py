"""Find problems of this machine that would disturb a run.

The checks cover this machine, and the clock and features of the store that the environment configures. ``lakefeed check
--connect`` checks the servers of a pipeline file.
"""

from __future__ import annotations

import http.client
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from lakefeed.clients.environment import default_environment, default_home
from lakefeed.clients.http import exchange
from lakefeed.clients.s3 import configured_keys, object_url, signed_headers
from lakefeed.clients.spark.driver_jvm import require_java
from lakefeed.clients.spark.jars import cache_directory, read_lock
from lakefeed.config.connections import Connections
from lakefeed.config.models import added_models
from lakefeed.errors import LakefeedError, install_command
from lakefeed.messages.pages import page_command

Verdict = Literal["ok", "warning", "error"]

SPARK_LINE = "4.1."
GIB = 1 << 30
LEAST_MEMORY, USUAL_MEMORY = 2 * GIB, 4 * GIB
LEAST_DISK, USUAL_DISK = 1 * GIB, 5 * GIB
OPEN_FILES = 4096
SKEW_SECONDS, MOST_SKEW_SECONDS = 30.0, 900.0
"""S3 servers refuse a request if the client's clock differs from the server's by more than 15 minutes."""
STORE_SECONDS = 5.0
EXTRAS = {"pyiceberg": "read", "duckdb": "read", "pandas": "pandas", "psycopg": "postgresql", "pymysql": "mariadb"}


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The result of one check; ``hint`` has the next step, unless the result is ok."""

    name: str
    verdict: Verdict
    what: str
    hint: str | None = None


def examine() -> list[Diagnosis]:
    """Run all checks; a check that raises an error becomes a warning."""
    findings: list[Diagnosis] = []
    checks = (_python, _java, _spark, _extras, _jars, _memory, _cores, _disk, _temporary, _files, _names, _ports)
    for check in (*checks, _clock, _store):
        try:
            findings += check()
        except (OSError, ValueError, LakefeedError) as error:
            findings.append(Diagnosis(name=check.__name__.strip("_"), verdict="warning", what=f"is not known: {error}"))
    return findings


def _python() -> Iterator[Diagnosis]:
    what = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    yield Diagnosis(name="python", verdict="ok", what=what)
    names = {"iceberg-spark-runtime": "Iceberg", "hadoop-aws": "Hadoop", "kafka-clients": "Kafka's client"}
    locked = [f"Spark {SPARK_LINE}x"]
    for artifact in read_lock().of(["spark"]):
        _, name, number = artifact.coordinate.split(":")[:3]
        locked += [f"{text} {number}" for part, text in names.items() if name.startswith(part)]
    line = f"lakefeed {_installed('lakefeed') or '?'}, made for {', '.join(locked)}"
    yield Diagnosis(name="versions", verdict="ok", what=line)


def _java() -> Iterator[Diagnosis]:
    try:
        yield Diagnosis(name="java", verdict="ok", what=str(require_java()))
    except LakefeedError as error:
        where = f" ({error.where})" if error.where else ""
        yield Diagnosis(name="java", verdict="error", what=f"{error.what}{where}", hint=error.hint)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _spark() -> Iterator[Diagnosis]:
    found = _installed("pyspark")
    hint = install_command("spark")
    if found is None:
        yield Diagnosis(name="spark", verdict="error", what="PySpark is not installed", hint=hint)
    elif not found.startswith(SPARK_LINE):
        what = f"PySpark {found} is not of the line {SPARK_LINE}x, which lakefeed's jars are made for"
        yield Diagnosis(name="spark", verdict="error", what=what, hint=hint)
    else:
        yield Diagnosis(name="spark", verdict="ok", what=f"PySpark {found}")


def _extras() -> Iterator[Diagnosis]:
    there = [f"{package} {found}" for package in EXTRAS if (found := _installed(package))]
    missing = sorted({extra for package, extra in EXTRAS.items() if _installed(package) is None})
    what = ", ".join(there) or "none"
    if missing:
        what += f"; the extras {', '.join(missing)} are not installed, and only some tasks need them"
    yield Diagnosis(name="extras", verdict="ok", what=what)


def _jars() -> Iterator[Diagnosis]:
    artifacts = read_lock().of(["spark"])
    missing = [artifact for artifact in artifacts if not artifact.path.exists()]
    if not missing:
        yield Diagnosis(name="jars", verdict="ok", what=f"{len(artifacts)} in {cache_directory() / 'jars'}")
        return
    size = sum(artifact.size for artifact in missing) / 1e6
    what = f"{len(missing)} of {len(artifacts)} are not fetched yet ({size:,.0f} MB)"
    yield Diagnosis(
        name="jars", verdict="warning", what=what, hint="run lakefeed jars fetch, or let the first start fetch them"
    )


def _memory() -> Iterator[Diagnosis]:
    free = _free_memory()
    if free is None:
        yield Diagnosis(name="memory", verdict="ok", what="not known on this system")
        return
    verdict = _grade(free, least=LEAST_MEMORY, usual=USUAL_MEMORY)
    hint = "a local run takes 2 to 3 GB: end other programs, or lower spark.driver.memory in the pipeline file"
    yield Diagnosis(name="memory", verdict=verdict, what=f"{free / GIB:.1f} GiB free", hint=_unless_ok(verdict, hint))


def _free_memory() -> int | None:
    """Return the free memory of this machine in bytes, or of this container within its limit."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    except OSError:
        return None
    free = int(lines["MemAvailable"].split()[0]) * 1024
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if most == "max" else min(free, int(most) - used)


def _cores() -> Iterator[Diagnosis]:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    verdict: Verdict = "ok" if count > 1 else "warning"
    hint = "use two or more: one core has to decode, write and run the servers in turn"
    yield Diagnosis(name="cores", verdict=verdict, what=str(count), hint=_unless_ok(verdict, hint))


def _disk() -> Iterator[Diagnosis]:
    for name, folder in (("cache", cache_directory()), ("home", default_home())):
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        if not os.access(there, os.W_OK):
            hint = f"make it writable, or set LAKEFEED_{name.upper()} to another folder"
            yield Diagnosis(name=name, verdict="error", what=f"{there} cannot be written to", hint=hint)
            continue
        free = shutil.disk_usage(there).free
        verdict = _grade(free, least=LEAST_DISK, usual=USUAL_DISK)
        hint = f"free disk space, or set LAKEFEED_{name.upper()} to a folder with more"
        what = f"{folder}, {free / GIB:.1f} GiB free"
        yield Diagnosis(name=name, verdict=verdict, what=what, hint=_unless_ok(verdict, hint))


def _temporary() -> Iterator[Diagnosis]:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    verdict = _grade(free, least=LEAST_DISK, usual=USUAL_DISK)
    what, hint = f"{folder}, {free / GIB:.1f} GiB free", "Spark shuffles there: make room, or set TMPDIR"
    if os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):
        verdict, what = "warning", f"{folder} is mounted noexec"
        hint = "codecs load native code from there: spark.driver.extraJavaOptions: -Djava.io.tmpdir=/another/folder"
    yield Diagnosis(name="temporary files", verdict=verdict, what=what, hint=_unless_ok(verdict, hint))


def _files() -> Iterator[Diagnosis]:
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_enough = soft == resource.RLIM_INFINITY or soft >= OPEN_FILES
    hint = f"ulimit -n {OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)}"
    verdict: Verdict = "ok" if is_enough else "warning"
    yield Diagnosis(name="open files", verdict=verdict, what=f"{soft} at most", hint=_unless_ok(verdict, hint))


def _names() -> Iterator[Diagnosis]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
    host = socket.gethostname()
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        hint = f"add '127.0.1.1 {host}' to /etc/hosts, or set SPARK_LOCAL_HOSTNAME=localhost"
        what = f"the name of this machine, {host}, has no address, and Spark looks it up at its start"
        yield Diagnosis(name="network", verdict="warning", what=what, hint=hint)
    else:
        yield Diagnosis(name="network", verdict="ok", what=f"{host}, 127.0.0.1")


def _ports() -> Iterator[Diagnosis]:
    dashboard = added_models().get("dashboard")
    if dashboard is None:
        return
    port = dashboard.model_fields["port"].default
    with socket.socket() as server:
        try:
            server.bind(("127.0.0.1", port))
        except OSError as error:
            what = f"the dashboard's port {port} cannot be used: {error.strerror}"
            hint = "name another one: lakefeed run --dashboard 127.0.0.1:PORT"
            yield Diagnosis(name="ports", verdict="warning", what=what, hint=hint)
            return
    yield Diagnosis(name="ports", verdict="ok", what=f"{port} is free for the dashboard")


def _clock() -> Iterator[Diagnosis]:
    endpoint = default_environment().get("AWS_ENDPOINT_URL_S3")
    if not endpoint:
        what = "not compared: AWS_ENDPOINT_URL_S3 names no store, and no local stack runs"
        yield Diagnosis(name="clock", verdict="ok", what=what)
        return
    skew = _skew(endpoint)
    if skew is None:
        yield Diagnosis(name="clock", verdict="warning", what="not compared: the store's answer has no time")
        return
    verdict: Verdict = "ok" if abs(skew) < SKEW_SECONDS else "error" if abs(skew) > MOST_SKEW_SECONDS else "warning"
    hint = "set the clock (chrony, systemd-timesyncd): S3 refuses requests that are 15 minutes off"
    what = f"{skew:+.0f} s against the store"
    yield Diagnosis(name="clock", verdict=verdict, what=what, hint=_unless_ok(verdict, hint))


def _skew(endpoint: str, *, now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds by which this machine's clock is ahead of a server's; None if the server sends no time."""
    parts = urlsplit(endpoint)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=3)
    try:
        connection.request("HEAD", "/")
        date = connection.getresponse().headers.get("Date")
        return None if date is None else now() - parsedate_to_datetime(date).timestamp()
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _store() -> Iterator[Diagnosis]:
    """Check that the store supports If-None-Match: without it, two writers could overwrite a file of a checkpoint."""
    environment = default_environment()
    place = urlsplit(environment.get("LAKEFEED_WAREHOUSE", ""))
    if place.scheme != "s3":
        what = "not tried: LAKEFEED_WAREHOUSE names no bucket, and no local stack runs"
        yield Diagnosis(name="store", verdict="ok", what=what)
        return
    s3 = Connections.from_environment(environment).s3
    key = f"{place.path.strip('/')}/lakefeed-doctor-{uuid.uuid4().hex}".strip("/")
    url, keys = object_url(place.netloc, key, s3=s3), configured_keys(s3)

    def status(method: str, **headers: str) -> int:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        signed = signed_headers(url, keys=keys, region=s3.region, method=method, headers=given)
        return exchange(method, url, seconds=STORE_SECONDS, headers=signed, body=b"" if given else None).status

    first = status("PUT", if_none_match="*")
    second = status("PUT", if_none_match="*")
    removed = status("DELETE")
    if first == 200 and second in (409, 412):
        what = "it refuses a second writer of an object (If-None-Match)"
        verdict: Verdict = "ok" if removed in (200, 204) else "warning"
        hint = f"these keys may not delete s3://{place.netloc}/{key}: allow s3:DeleteObject"
        yield Diagnosis(name="store", verdict=verdict, what=what, hint=_unless_ok(verdict, hint))
    elif first == 200:
        what = f"it overwrites an object although If-None-Match forbids that (status {second})"
        hint = f"put checkpoints into another store, or leave them out: {page_command('catalogs')}"
        yield Diagnosis(name="store", verdict="error", what=what, hint=hint)
    else:
        what = f"it refuses a new object below s3://{place.netloc}/{place.path.strip('/')} with status {first}"
        yield Diagnosis(name="store", verdict="error", what=what, hint="lakefeed check --connect shows the reason")


def _grade(amount: float, *, least: float, usual: float) -> Verdict:
    return "error" if amount < least else "warning" if amount < usual else "ok"


def _unless_ok(verdict: Verdict, hint: str) -> str | None:
    return None if verdict == "ok" else hint
