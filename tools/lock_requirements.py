"""Write the container image's pip requirements from uv.lock: ``python tools/lock_requirements.py [--check]``.

``requirements.txt`` has lakefeed's runtime packages for CPython on Linux, with the hashes of their files. The versions
are those for Python 3.11; later versions of Python accept them, too. ``setuptools.txt`` has the package with which pip
builds PySpark from its source archive.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.markers import Marker

ROOT = Path(__file__).resolve().parents[1]
IMAGE = ROOT / "packages" / "deploy" / "src" / "lakefeed_deploy" / "image"
EXTRAS = ("spark", "read", "postgresql", "mariadb", "pandas", "otlp", "dashboard")
TARGET = {
    "implementation_name": "cpython",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "python_full_version": "3.11.0",
    "python_version": "3.11",
    "sys_platform": "linux",
}
_HEADER = "# Made by tools/lock_requirements.py from uv.lock: change that instead.\n"


def requirements() -> str:
    """Return lakefeed's runtime packages with their hashes."""
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    command = [sys.executable, "-m", "uv", "export", "--frozen", "--offline", "--no-default-groups", *extras]
    plain = ["--no-emit-workspace", "--no-annotate", "--no-header", "--quiet"]
    text = subprocess.run([*command, *plain], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    packages = []
    for entry in re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]:
        name, _, hashes = entry.partition(" \\\n")
        package, _, marker = name.partition(" ; ")
        if not marker or Marker(marker).evaluate(TARGET):
            packages.append(f"{package} \\\n{hashes}")
    return _HEADER + "".join(packages)


def setuptools() -> str:
    """Return the locked setuptools with its hashes."""
    (package,) = (
        each for each in tomllib.loads((ROOT / "uv.lock").read_text())["package"] if each["name"] == "setuptools"
    )
    hashes = [f"    --hash={file['hash']}" for file in package["wheels"]]
    return _HEADER + " \\\n".join([f"setuptools=={package['version']}", *hashes]) + "\n"


FILES = {IMAGE / "requirements.txt": requirements, IMAGE / "setuptools.txt": setuptools}


def main() -> int:
    """Write the files that are out of date; with --check, only list them, and return status 1."""
    differing = [
        path for path, text in FILES.items() if not path.exists() or path.read_text(encoding="utf-8") != text()
    ]
    for path in differing:
        if "--check" in sys.argv[1:]:
            print(f"{path.relative_to(ROOT)} is out of date: make docs")
        else:
            path.write_text(FILES[path](), encoding="utf-8")
    return int(bool(differing) and "--check" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
