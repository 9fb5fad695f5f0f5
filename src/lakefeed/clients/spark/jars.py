"""Fetch the jars of the lock file once over HTTPS into a per-user cache, and check their SHA-256 at every use.

No dependency is resolved at run time: ``jars.lock``, which ``tools/lock_jars.py`` writes, lists every file.

Environment:
    LAKEFEED_JARS: a folder of jars, for example in a container image; jars that it lacks come from the cache.
    LAKEFEED_CACHE: the folder of the cache; default ``$XDG_CACHE_HOME/lakefeed`` or ``~/.cache/lakefeed``.
    LAKEFEED_MAVEN_REPOSITORY: a mirror or private repository, ``https://``, ``http://`` or ``file://``.
    LAKEFEED_MAVEN_USER, LAKEFEED_MAVEN_PASSWORD: HTTP basic credentials for it.
    SSL_CERT_FILE, HTTPS_PROXY, HTTP_PROXY, NO_PROXY: as usual.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import ssl
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from lakefeed.errors import ConfigError, DownloadError
from lakefeed.plugins import SINKS_GROUP, installed_kinds

Progress = Callable[[int], None]
"""A function to call with the number of bytes fetched so far; called from several threads, but never concurrently."""

State = Literal["ok", "missing", "damaged"]

_WORKERS = 8
_TRIES = 3
_PAUSE_SECONDS = 0.5
_TIMEOUT_SECONDS = 30
_SLOWEST_BYTES_PER_SECOND = 1_000
_CHUNK = 1 << 20
_ABANDONED_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A file that the lock file lists."""

    coordinate: str
    groups: tuple[str, ...]
    sha256: str
    size: int

    @property
    def path(self) -> Path:
        """The file's path: in the folder ``LAKEFEED_JARS`` if the file is there, else in the cache."""
        place = artifact_path(self.coordinate)
        if (folder := os.environ.get("LAKEFEED_JARS")) and (installed := Path(folder, place)).is_file():
            return installed
        return cache_directory() / "jars" / place

    def state(self) -> State:
        """Return "ok", "missing" or "damaged", from the file's size and SHA-256."""
        try:
            if self.path.stat().st_size != self.size:
                return "damaged"
            with self.path.open("rb") as file:
                return "ok" if hashlib.file_digest(file, "sha256").hexdigest() == self.sha256 else "damaged"
        except FileNotFoundError:
            return "missing"
        # An unreadable file is damaged, too: a download then replaces the file, or fails with a better message.
        except OSError:
            return "damaged"


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The lock files of all packages: the default repository, and the artifacts in class path order.

    ``sink_groups`` are the groups that packages of installed sinks add; their jars are in every session.
    """

    repository: str
    artifacts: tuple[Artifact, ...]
    sink_groups: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(group for artifact in self.artifacts for group in artifact.groups))

    def of(self, groups: Iterable[str]) -> list[Artifact]:
        """Return the artifacts of these groups, without duplicates, in class path order."""
        requested = set(groups)
        if unknown := sorted(requested - set(self.groups)):
            hint = f"the groups are: {', '.join(self.groups)}"
            raise ConfigError(f"there is no group of jars named {', '.join(unknown)}", hint=hint)
        return [artifact for artifact in self.artifacts if requested & set(artifact.groups)]


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A Maven repository. Its ``url`` has no credentials, so that messages can show it."""

    url: str
    authorization: str | None = field(default=None, repr=False)

    def url_of(self, artifact: Artifact) -> str:
        return f"{self.url}/{artifact_path(artifact.coordinate)}"


def cache_directory() -> Path:
    """Return ``LAKEFEED_CACHE``, else ``$XDG_CACHE_HOME/lakefeed``, else ``~/.cache/lakefeed``."""
    if explicit := os.environ.get("LAKEFEED_CACHE"):
        return Path(explicit).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "lakefeed"


def artifact_path(coordinate: str) -> str:
    *names, version = coordinate.split(":")
    name, _, kind = ":".join(names).partition("@")
    group, artifact, *classifier = name.split(":")
    file = "-".join([artifact, version, *classifier])
    return f"{group.replace('.', '/')}/{artifact}/{version}/{file}.{kind or 'jar'}"


def read_lock() -> Lock:
    """Read the lock file of this package, and the files ``jars.lock`` of installed sinks' packages."""
    own = json.loads(files("lakefeed").joinpath("jars.lock").read_text())
    artifacts = list(_artifacts(own))
    sink_groups: dict[str, None] = {}
    for package in dict.fromkeys(entry.module.partition(".")[0] for entry in installed_kinds(SINKS_GROUP).values()):
        try:
            lock = files(package).joinpath("jars.lock")
        except (ImportError, TypeError):  # The package cannot be imported, or is a single module without files.
            continue
        if lock.is_file():
            added = list(_artifacts(json.loads(lock.read_text())))
            artifacts += added
            sink_groups |= dict.fromkeys(group for artifact in added for group in artifact.groups)
    return Lock(repository=own["repository"], artifacts=tuple(artifacts), sink_groups=tuple(sink_groups))


def _artifacts(document: Any) -> Iterator[Artifact]:
    for item in document["artifacts"]:
        yield Artifact(**{**item, "groups": tuple(item["groups"])})


def repository_from_environment(default: str) -> Repository:
    """Return the repository of ``LAKEFEED_MAVEN_REPOSITORY``, or the default one, which never gets credentials.

    Credentials come from ``LAKEFEED_MAVEN_USER`` and ``LAKEFEED_MAVEN_PASSWORD``, or from the URL. The target of a
    redirect does not get the credentials.
    """
    given = os.environ.get("LAKEFEED_MAVEN_REPOSITORY")
    if not given:
        return Repository(url=default.rstrip("/"))
    parts = urlsplit(given)
    if parts.scheme not in ("https", "http", "file"):
        raise ConfigError(
            "LAKEFEED_MAVEN_REPOSITORY is not a https://, http:// or file:// URL",
            hint="set the variable to a Maven repository, such as file:///srv/maven, or unset it",
        )
    user = os.environ.get("LAKEFEED_MAVEN_USER") or unquote(parts.username or "")
    password = os.environ.get("LAKEFEED_MAVEN_PASSWORD") or unquote(parts.password or "")
    authorization = None
    if user and parts.scheme != "file":
        authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
    return Repository(url=bare.rstrip("/"), authorization=authorization)


def fetch(groups: Iterable[str]) -> list[Path]:
    """Fetch those jars of these groups that the cache lacks; return the paths of all their jars in class path order.

    With a full cache, no request is made. Several processes may fetch at the same time: each one renames its complete
    file. Raises a DownloadError if a file does not arrive or differs from the lock file.
    """
    lock = read_lock()
    artifacts = lock.of(groups)
    with ThreadPoolExecutor(_WORKERS) as pool:
        states = list(pool.map(Artifact.state, artifacts))
    requested = [artifact for artifact, state in zip(artifacts, states, strict=True) if state != "ok"]
    if requested:
        repository = repository_from_environment(lock.repository)
        with _shown(requested, source=repository.url) as progress:
            _download_all(requested, repository, progress)
    return [artifact.path for artifact in artifacts]


def _download_all(artifacts: list[Artifact], repository: Repository, progress: Progress) -> None:
    """Download files in parallel; the first download that fails stops all others."""
    arrived: dict[str, int] = {}
    reporting = threading.Lock()
    stop = threading.Event()

    def bring(artifact: Artifact) -> None:
        def report(count: int) -> None:
            with reporting:
                arrived[artifact.coordinate] = count  # Not added: a second attempt starts at 0.
                progress(sum(arrived.values()))

        try:
            download(artifact, repository, report=report, stop=stop)
        except _Stopped:
            return
        except BaseException:
            stop.set()
            raise

    # Begin with the large files, so that the last download is a short one.
    ordered = sorted(artifacts, key=lambda artifact: -artifact.size)
    with ThreadPoolExecutor(_WORKERS) as pool:
        futures = [pool.submit(bring, artifact) for artifact in ordered]
        try:
            for future in as_completed(futures):
                future.result()
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _shown(artifacts: list[Artifact], *, source: str) -> Iterator[Progress]:
    """Show a progress bar on stderr if stderr is a terminal; otherwise print one line."""
    size = sum(artifact.size for artifact in artifacts)
    title = f"fetching {len(artifacts)} jars ({size / 1e6:.0f} MB)"
    if not sys.stderr.isatty():
        print(f"{title} from {source}", file=sys.stderr)
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=size)
        yield lambda done: bar.update(task, completed=done)


class _Stopped(Exception):
    """Ends a download because another download has failed."""


class _Fault(Exception):
    """The reason why a download failed; ``is_transient`` means that another attempt may succeed."""

    def __init__(self, reason: str, hint: str, *, is_transient: bool = False) -> None:
        self.reason = reason
        self.hint = hint
        self.is_transient = is_transient
        super().__init__(reason)


def download(
    artifact: Artifact, repository: Repository, *, report: Callable[[int], None], stop: threading.Event
) -> None:
    """Download one file to ``artifact.path``; after an error, or if ``stop`` is set, the path is unchanged."""
    folder = artifact.path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob(".*.part"):  # Remove files that killed processes have left.
            with suppress(FileNotFoundError):
                if time.time() - part.stat().st_mtime > _ABANDONED_SECONDS:
                    part.unlink()
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=".part")
    except OSError as error:
        raise ConfigError(
            f"the cache directory cannot be written: {error.strerror}",
            where=str(folder),
            hint="set LAKEFEED_CACHE to a directory that you may write",
        ) from error
    temporary = Path(name)
    try:
        with open(descriptor, "wb") as file:
            _receive(artifact, repository, file, report, stop)
        temporary.chmod(0o644)
        temporary.replace(artifact.path)
    except (_Fault, OSError) as error:
        if isinstance(error, _Fault):
            reason, hint = error.reason, error.hint
        else:
            reason = f"it cannot be stored ({error.strerror})"
            hint = f"free space or fix permissions in {folder}"
        what = f"{artifact.coordinate} was not downloaded: {reason}"
        raise DownloadError(what, where=repository.url_of(artifact), hint=hint) from error
    finally:
        temporary.unlink(missing_ok=True)


def _receive(
    artifact: Artifact, repository: Repository, file: BinaryIO, report: Callable[[int], None], stop: threading.Event
) -> None:
    for attempt in range(1, _TRIES + 1):
        file.seek(0)
        file.truncate()
        try:
            _receive_once(artifact, repository, file, report, stop)
            return
        except _Fault as fault:
            if attempt == _TRIES or not fault.is_transient:
                raise
            stop.wait(_PAUSE_SECONDS * attempt)


def _receive_once(
    artifact: Artifact, repository: Repository, file: BinaryIO, report: Callable[[int], None], stop: threading.Event
) -> None:
    request = urllib.request.Request(repository.url_of(artifact), headers={"User-Agent": "lakefeed"})  # noqa: S310 (checked scheme)
    if repository.authorization:
        request.add_unredirected_header("Authorization", repository.authorization)
    digest, arrived = hashlib.sha256(), 0
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
            before, until = 0, time.monotonic() + _TIMEOUT_SECONDS
            # read1 returns the bytes that have arrived; read would wait for a whole chunk, even from a slow server.
            while chunk := response.read1(_CHUNK):
                arrived += len(chunk)
                if time.monotonic() > until:
                    if arrived - before < _SLOWEST_BYTES_PER_SECOND * _TIMEOUT_SECONDS:
                        raise TimeoutError(f"{arrived - before} bytes in {_TIMEOUT_SECONDS} s")
                    before, until = arrived, time.monotonic() + _TIMEOUT_SECONDS
                if stop.is_set():
                    raise _Stopped
                if arrived > artifact.size:
                    break
                digest.update(chunk)
                file.write(chunk)
                report(arrived)
    except urllib.error.HTTPError as error:
        error.close()
        raise _refused(error.code) from error
    except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        raise _unreached(getattr(error, "reason", None) or error) from error
    file.flush()
    os.fsync(file.fileno())
    if arrived < artifact.size:
        hint = "try again; files that have arrived completely are not fetched again"
        raise _Fault(f"{arrived} of {artifact.size} bytes arrived", hint, is_transient=True)
    if arrived > artifact.size or digest.hexdigest() != artifact.sha256:
        actual = digest.hexdigest() if arrived == artifact.size else f"of more than {artifact.size} bytes"
        raise _Fault(
            f"its SHA-256 is not the locked one\n  expected: {artifact.sha256}\n  actual:   {actual}",
            "the repository serves another file under this name: do not use it, and inform its administrator",
        )


def _refused(status: int) -> _Fault:
    if status in (401, 403):
        reason = f"the repository requires other credentials (HTTP {status})"
        return _Fault(reason, "set LAKEFEED_MAVEN_USER and LAKEFEED_MAVEN_PASSWORD")
    if status in (404, 410):
        reason = f"the repository does not have it (HTTP {status})"
        return _Fault(reason, "set LAKEFEED_MAVEN_REPOSITORY to a repository that has it, or unset it")
    reason = f"the repository answered HTTP {status}"
    if status == 429 or status >= 500:
        return _Fault(reason, "try again later", is_transient=True)
    return _Fault(reason, "open the address in a browser")


def _unreached(cause: object) -> _Fault:
    if isinstance(cause, FileNotFoundError):
        return _refused(404)
    if isinstance(cause, ssl.SSLCertVerificationError):
        reason = f"the repository's certificate is not trusted ({cause.verify_message})"
        return _Fault(reason, "set SSL_CERT_FILE to a bundle with your organisation's certificate authority")
    reason = f"the repository does not answer ({cause})"
    hint = "check the network, HTTPS_PROXY, or set LAKEFEED_MAVEN_REPOSITORY to a mirror"
    return _Fault(reason, hint, is_transient=True)
