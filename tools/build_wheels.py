"""Build the source archive and, from the archive alone, all wheels: ``make wheels`` fills ``dist/``.

The archive has the jars, the references and the dashboard's chart library, so a wheel needs neither PySpark nor a JDK.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"


def build(target: Path = DIST, *, environment: Mapping[str, str] | None = None) -> list[Path]:
    """Build the source archive and the wheels of core and plug-ins into a folder; return their paths.

    Args:
        target: the folder; it is emptied first.
        environment: the environment of the wheels' builds, if not this process's own.
    """
    shutil.rmtree(target, ignore_errors=True)
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "build", "--quiet", "--no-create-gitignore", "--out-dir", str(target)]
    subprocess.run([*command, "--sdist", str(ROOT)], check=True)
    [archive] = target.iterdir()
    with TemporaryDirectory(prefix="lakefeed-wheels-") as folder:
        shutil.unpack_archive(archive, folder, filter="data")
        [unpacked] = Path(folder).iterdir()
        for package in [unpacked, *sorted((unpacked / "packages").iterdir())]:
            subprocess.run([*command, "--wheel", str(package)], check=True, env=environment)
    return sorted(target.iterdir())


if __name__ == "__main__":
    for path in build():
        print(f"{path.stat().st_size:>9,} bytes  {path.relative_to(ROOT)}")
