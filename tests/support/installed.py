"""Install lakefeed as a new user does: the wheel in a new environment, with an empty home and folder."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakefeed.clients.spark.jars import cache_directory
from lakefeed_deploy.image import write_wheels


@dataclass
class Shell:
    """Runs commands in a folder; the environment has only the path to Java and the caches of this process.

    Attributes:
        said: the output of all commands, with the time that each took.
    """

    folder: Path
    variables: dict[str, str]
    said: list[str] = field(default_factory=list)

    def __call__(self, *words: str, status: int = 0, timeout: float = 300) -> str:
        """Run a command; return its output."""
        began = time.monotonic()
        done: subprocess.CompletedProcess[str] = subprocess.run(
            words, **self._surroundings(), text=True, timeout=timeout, check=False
        )
        self.said.append(f"$ {' '.join(words)}   # {time.monotonic() - began:.1f} s, status {done.returncode}")
        shown = done.stdout.splitlines()
        self.said += shown if len(shown) <= 30 else [*shown[:15], f"… {len(shown) - 30} lines …", *shown[-15:]]
        assert done.returncode == status, done.stdout
        assert "Traceback" not in done.stdout, done.stdout
        assert "\tat " not in done.stdout, done.stdout  # The output must not contain a Java stack trace.
        return done.stdout

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in its own process group."""
        self.said.append(f"$ {' '.join(words)} &")
        return subprocess.Popen(words, **self._surroundings(), text=True, start_new_session=True)

    def _surroundings(self) -> dict[str, Any]:
        return {
            "cwd": self.folder,
            # A shell sets PWD to its working directory.
            "env": {"PWD": str(self.folder), **self.variables},
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }


def install(folder: Path, *, extras: str, variables: Mapping[str, str] | None = None) -> Shell:
    """Install this checkout's wheel with extras; return a shell in an empty folder, with lakefeed on the path.

    Args:
        folder: an empty folder for the environment, the home and the working directory.
        extras: the wheel's extras, separated by commas.
        variables: further environment variables of the shell.
    """
    core, *_ = write_wheels(folder)
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder / "env"], check=True)
    requirement = f"lakefeed[{extras}] @ {core.as_uri()}"
    python = folder / "env" / "bin" / "python"
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--find-links", folder, "--python", python, requirement], check=True
    )
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    known = {name: os.environ[name] for name in ("JAVA_HOME", "LANG", "TMPDIR") if name in os.environ}
    return Shell(
        work,
        {
            **known,
            "HOME": str(home),
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "LAKEFEED_CACHE": str(cache_directory()),
            **(variables or {}),
        },
    )
