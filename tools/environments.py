"""Make environments of their own for programs that cannot share lakefeed's packages: ``build/environments/<name>``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_UV = str(Path(sys.executable).with_name("uv"))


def environment(name: str, *packages: str) -> Path:
    """Install packages and their dependencies into the environment, unless it has them; return its Python."""
    folder = ROOT / "build" / "environments" / name
    python, listed = folder / "bin" / "python", folder / "packages.txt"
    if not listed.exists() or listed.read_text() != "\n".join(packages):
        subprocess.run([_UV, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
        subprocess.run([_UV, "pip", "install", "--quiet", "--python", python, *packages], check=True)
        listed.write_text("\n".join(packages))
    return python
