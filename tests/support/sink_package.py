"""Install the sink of another package (``sqlite_archive``) into a folder, as pip does, without a network."""

import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent / "sqlite_archive"


def install(folder: Path) -> Path:
    """Build and install the package; return the folder to put on the path.

    Args:
        folder: an empty folder.
    """
    source, site = folder / "source", folder / "site"
    shutil.copytree(SOURCE, source)  # A build creates files beside the sources.
    options = ("--no-index", "--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(site), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return site
