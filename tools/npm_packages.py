"""Fetch the packages of ``npm.lock`` from npm's registry, without npm, and check their SHA-512 at every use.

The archives are in the per-user cache, like the jars. This module uses only the standard library, because the build of
the wheels (hatchling) imports it.

Environment:
    LAKEFEED_CACHE, XDG_CACHE_HOME: the cache's folder.
    NPM_CONFIG_REGISTRY: a mirror or private registry. Default: ``registry=`` in ``~/.npmrc``, or npm's own registry.
    HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE: with their usual meaning.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tarfile
import tempfile
import time
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

LOCK = Path(__file__).with_name("npm.lock")
REGISTRY = "https://registry.npmjs.org"
TRIES = 3
TIMEOUT_SECONDS = 60


class NotFetched(Exception):
    """A package cannot be fetched; the message has the reason and the next step."""


def locked(name: str) -> dict[str, Any]:
    """Return a package's entry in the lock."""
    entry: dict[str, Any] = json.loads(LOCK.read_text())[name]
    return entry


def fetch(name: str) -> Path:
    """Return the verified archive of a locked package; download it if it is not in the cache."""
    entry = locked(name)
    place = cache() / "npm" / f"{name.replace('/', '+')}-{entry['version']}.tgz"
    if place.is_file() and integrity(place.read_bytes()) == entry["integrity"]:
        return place
    content = _download(url_of(name, entry["version"]))
    if integrity(content) != entry["integrity"]:
        raise NotFetched(
            f"the SHA-512 of {url_of(name, entry['version'])} differs from {LOCK.name}.\n"
            "Next: do not use the file; ask the registry's administrator why it differs."
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=place.parent, prefix=".", suffix=".part")
    with open(descriptor, "wb") as file:
        file.write(content)
    # Rename the file when it is complete, because other processes may read the cache.
    Path(partial).replace(place)
    return place


def read(name: str, *members: str) -> list[bytes]:
    """Return the contents of files of a locked package, by their paths in the package."""
    with tarfile.open(fetch(name)) as archive:
        contents = []
        for member in members:
            file = archive.extractfile(f"package/{member}")
            assert file is not None, member
            contents.append(file.read())
        return contents


def url_of(name: str, version: str) -> str:
    """Return the URL of a package's archive."""
    return f"{registry()}/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"


def registry() -> str:
    """Return the URL of the registry that npm would use."""
    for variable in ("NPM_CONFIG_REGISTRY", "npm_config_registry"):
        if given := os.environ.get(variable):
            return given.rstrip("/")
    try:
        text = (Path.home() / ".npmrc").read_text("utf-8")
    except OSError:
        return REGISTRY
    setting = re.search(r"^\s*registry\s*=\s*(\S+)\s*$", text, re.MULTILINE)
    return setting[1].rstrip("/") if setting else REGISTRY


def cache() -> Path:
    """Return the folder of the per-user cache, which also has the jars."""
    if explicit := os.environ.get("LAKEFEED_CACHE"):
        return Path(explicit).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "lakefeed"


def integrity(content: bytes) -> str:
    """Return the SHA-512 in the format of npm's lock files."""
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def _download(url: str) -> bytes:
    for attempt in range(TRIES):
        try:
            request = urllib.request.Request(url, headers={"User-Agent": "lakefeed"})
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                content: bytes = response.read()
                return content
        except (OSError, HTTPException, ValueError) as error:
            reason = str(getattr(error, "reason", None) or error)
            time.sleep(0.5 * attempt)
    raise NotFetched(
        f"{url} cannot be downloaded: {reason}.\n"
        "Next: check the network and HTTPS_PROXY, or set NPM_CONFIG_REGISTRY to a registry that can be reached."
    )
