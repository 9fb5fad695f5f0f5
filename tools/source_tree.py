"""The folders of the repository's Python packages, and copies of the repository."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tools import build_jvm

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "src" / "lakefeed"
PACKAGES = (CORE, *sorted(path.parent for path in ROOT.glob("packages/*/src/*/__init__.py")))
JARS = tuple(jar.relative_to(ROOT) for jar in (build_jvm.JAR, *(plugin.jar for plugin in build_jvm.PLUGINS)))


def copy_to(folder: Path) -> None:
    """Copy the built jars, and all files that git does not ignore, in their current state."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for jar in JARS:
        shutil.copy2(ROOT / jar, folder / jar)
