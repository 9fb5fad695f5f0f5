"""Build the references in ``docs/`` that are not committed: ``python -m tools.references``, a part of ``make setup``.

A reference that is missing or older than the code is rebuilt. A checkout also builds the references when it first needs
its pages (``lakefeed_local.docs_command``).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
NAMES = ("pipeline-reference.md", "commands.md", "metrics-reference.md", "errors.md", "python-reference.md")
_SOURCES = ("src", "packages/*/src", "tools")


def build(folder: Path = DOCS) -> bool:
    """Build the references in a folder if they are out of date; return True if they were out of date.

    Raises: CalledProcessError: a plug-in of the repository is not installed, or the code is broken.
    """
    files = [folder / name for name in NAMES]
    if all(file.exists() for file in files):
        code = (file for pattern in _SOURCES for part in ROOT.glob(pattern) for file in part.rglob("*.py"))
        if max(file.stat().st_mtime for file in code) <= min(file.stat().st_mtime for file in files):
            return False
    # Run the tool in a separate process, because the caller may have changed click's commands in this process.
    subprocess.run([sys.executable, "-m", "tools.generate_docs", "--references", str(folder)], cwd=ROOT, check=True)
    return True


if __name__ == "__main__":
    build()
