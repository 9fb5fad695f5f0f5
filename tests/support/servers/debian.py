"""Use programs and libraries from Debian's packages, downloaded once and unpacked without root."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from lakefeed.clients.spark.jars import cache_directory


class NoPackage(Exception):
    """A Debian package is not available; the message says what to do."""


def unpack_packages(*packages: str, prepare: Callable[[Path], None] = lambda root: None) -> Path:
    """Return a folder with the files of packages, which are unpacked and not installed.

    Args:
        packages: the names of the packages; the folder has the name of the first one.
        prepare: a function that changes the files once, before any process uses them.
    """
    root = cache_directory() / "debian" / packages[0]
    if root.exists():
        return root
    fresh = root.with_name(f"{root.name}-{os.getpid()}")
    downloads = fresh / "downloads"
    downloads.mkdir(parents=True)
    try:
        _download(packages, downloads)
        for package in downloads.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, fresh], check=True)
        shutil.rmtree(downloads)
        prepare(fresh)
        try:
            fresh.rename(root)
        except OSError:  # Meanwhile another process has unpacked the packages.
            assert root.exists()
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return root


def _download(packages: tuple[str, ...], folder: Path) -> None:
    command = ["apt-get", "download", "-qq", *packages]
    if shutil.which("apt-get") is None:
        raise NoPackage(f"{', '.join(packages)} come from Debian's packages.\nNext: run this test on Debian or Ubuntu.")
    if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0:
        return
    # A new machine has no package lists yet.
    subprocess.run(["apt-get", "update", "-qq"], capture_output=True, check=False)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoPackage(f"{done.stderr.strip()}\nNext: run `apt-get update` as root, then the test again.")
