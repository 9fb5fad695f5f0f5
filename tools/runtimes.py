"""Find the interpreters of other Python versions on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_UV = str(Path(sys.executable).with_name("uv"))


class NotFound(Exception):
    """The machine has no such interpreter."""


def interpreter(version: str) -> Path:
    """Return the Python of a minor version that uv finds, or that pyenv has installed.

    Raises:
        NotFound: there is none; the message has uv's reason.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    # pyenv's shims come after its versions: uv ends at a shim whose version is not active.
    path = os.pathsep.join([*map(str, pyenv.glob(f"{version}.*/bin")), os.environ.get("PATH", "")])
    command = [_UV, "python", "find", "--no-project", "--system", version]
    found = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise NotFound(f"Python {version} is not on this machine: {found.stderr.strip()}")
    return Path(found.stdout.strip())
