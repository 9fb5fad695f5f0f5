"""Examples and pages, which the wheel brings along beside the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lakefeed.errors import ResourceMissing

PACKAGED = ("examples", "docs", "CHANGELOG.md")
"""Beside each other in the package as in the repository, so that links between them hold in both."""


def packaged_root(name: str) -> Path:
    """Return the folder that has one of ``PACKAGED``: the installed package, or a checkout, whose references it builds.

    Raises:
        ResourceMissing: neither has it.
    """
    package = Path(__file__).resolve().parents[1]
    for root in (package, package.parents[1]):
        if (root / name).exists():
            if name == "docs" and (root / "tools" / "references.py").exists():
                subprocess.run([sys.executable, "-m", "tools.references"], cwd=root, capture_output=True, check=False)
            return root
    raise ResourceMissing(
        f"the package came without {name}", where=str(package), hint="install lakefeed from its wheel"
    )
