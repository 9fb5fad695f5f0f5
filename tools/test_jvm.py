"""Run the unit tests of the Java code: ``python -m tools.test_jvm [NAME ...]``.

A NAME, such as ``Position``, chooses the test classes whose names contain it. The tests are in ``jvm/src/test/java``,
and need a JDK, but no build tool, server or Spark session. Compiled classes stay in ``build/jvm-tests`` until the
sources change.
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
# Spark's JVM has "add-opens", too. The serial garbage collector starts faster than others.
JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.nio=ALL-UNNAMED"]


def run(names: list[str]) -> int:
    """Run the test classes whose names contain one of the names, or all; return JUnit's exit status."""
    build(say=lambda _: None)
    groups = {group for plugin in PLUGINS for group in plugin.jar_groups()}
    on = [JAR, *(plugin.jar for plugin in PLUGINS), *class_path("test-junit", *groups)]
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
    """Return the folder of the compiled tests; compile them unless their sources are unchanged."""
    classes = CLASSES / digest_of(TESTS, RELEASE, sources_digest(), *map(str, on))[:16]
    if not classes.exists():
        partial = classes.with_suffix(".partial")
        shutil.rmtree(CLASSES, ignore_errors=True)
        partial.mkdir(parents=True)
        compile_classes(sorted(map(str, TESTS.rglob("*.java"))), partial, on)
        # Rename the folder when it is complete: an interrupted run would leave an incomplete folder of this name.
        partial.rename(classes)
    return classes


def main() -> int:
    try:
        return run(sys.argv[1:])
    except BuildFailed as failed:
        print(failed, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
