"""Run the unit tests of the JVM module: ``python -m tools.test_jvm [NAME ...]``.

A NAME is a part of a test class's name, such as ``Position``; without one, all tests run. The tests are in
``jvm/src/test/java`` and need a JDK but no build tool, no server and no Spark session. Compiled classes stay
in ``build/jvm-tests`` until the sources of the module or of the tests change.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.build_jvm import (
    JAR,
    PLUGINS,
    RELEASE,
    ROOT,
    BuildFailed,
    build,
    class_path,
    compile_classes,
    digest_of,
    sources_digest,
)

TESTS = ROOT / "jvm" / "src" / "test" / "java"
RESOURCES = ROOT / "jvm" / "src" / "test" / "resources"
CLASSES = ROOT / "build" / "jvm-tests"
RUNNER = "org.junit.platform.console.ConsoleLauncher"
# The flag is the one with which Spark starts its JVM. A serial collector starts faster.
JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.nio=ALL-UNNAMED"]


def run(names: list[str]) -> int:
    """Run the tests whose class name contains one of these names, or all; return JUnit's exit status.

    Raises:
        BuildFailed: the module or its tests cannot be compiled.
    """
    build(say=lambda _: None)
    on = [JAR, *(plugin.jar for plugin in PLUGINS), *class_path("test-junit")]
    classes = _compiled(on)
    selected = [f"--include-classname=.*({'|'.join(map(re.escape, names))}).*"] if names else []
    return subprocess.run(
        [
            *["java", *JVM, "-cp", ":".join(map(str, [classes, RESOURCES, *on])), RUNNER, "execute"],
            *["--disable-banner", "--details=summary", "--fail-if-no-tests", "--disable-ansi-colors"],
            *[f"--scan-classpath={classes}", *selected],
        ],
        cwd=ROOT,
        check=False,
    ).returncode


def _compiled(on: list[Path]) -> Path:
    """Compile the tests unless classes of the same sources exist."""
    classes = CLASSES / digest_of(TESTS, RELEASE, sources_digest(), *map(str, on))[:16]
    if not classes.exists():
        partial = classes.with_suffix(".partial")
        shutil.rmtree(CLASSES, ignore_errors=True)
        partial.mkdir(parents=True)
        compile_classes(TESTS, partial, on)
        # The rename comes last, so that an interrupted run leaves no incomplete classes under the final name.
        partial.rename(classes)
    return classes


def main() -> int:
    """Run the command; exit status 1 if a test fails or the tests cannot be compiled."""
    try:
        return run(sys.argv[1:])
    except BuildFailed as failed:
        print(failed, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
