"""Builds src/lakefeed/lakefeed-jvm.jar from jvm/ with a JDK alone: ``python tools/build_jvm.py [--force]``.

No build tool of the Java world is needed. The class path is PySpark's own jars and the locked ones, the same
that the jar later runs with. The jar is the same byte for byte for the same sources, and is built again only when
the sources have changed: their digest is inside it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "jvm" / "src" / "main"
JAR = ROOT / "src" / "lakefeed" / "lakefeed-jvm.jar"
DIGEST = "META-INF/lakefeed-sources.sha256"
RELEASE = "17"
# Scala's class files name annotations that are not on the class path: not ours to mend.
LINT = "-Xlint:all,-classfile,-path,-processing"
# The first moment that a ZIP file can tell.
EPOCH = (1980, 1, 1, 0, 0, 0)


class BuildFailed(Exception):
    """The jar cannot be built here; the message says what is missing."""


def build(*, force: bool = False, say: Callable[[str], None] = print) -> Path:
    """Brings the jar up to date and returns its path.

    Args:
        force: build even if the sources have not changed.
        say: told in one line what was done.

    Raises:
        BuildFailed: no JDK, no PySpark, or the sources do not compile.
    """
    digest = sources_digest()
    if not force and built_from() == digest:
        say(f"{JAR.name} is up to date")
        return JAR
    with tempfile.TemporaryDirectory(prefix="lakefeed-jvm-") as classes:
        _compile(Path(classes))
        # Beside the jar, so that the change to the new one is a rename and a reader never sees half a jar.
        partial = JAR.with_suffix(".jar.partial")
        try:
            _pack(Path(classes), digest, partial)
            partial.replace(JAR)
        finally:
            partial.unlink(missing_ok=True)
    say(f"{JAR.name} built, {JAR.stat().st_size} bytes")
    return JAR


def sources_digest() -> str:
    """SHA-256 of all that goes into the jar, and of the way it is built."""
    digest = hashlib.sha256(f"{RELEASE} {LINT}\n".encode())
    for path in sorted(path for path in SOURCES.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(SOURCES).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def built_from() -> str | None:
    """The digest of the sources that the present jar was built from; None without a whole jar."""
    try:
        with zipfile.ZipFile(JAR) as jar:
            return jar.read(DIGEST).decode()
    except (FileNotFoundError, KeyError, zipfile.BadZipFile):
        return None


def _class_path() -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise BuildFailed(
            "PySpark is not installed for this Python; its jars are what the JVM module is compiled against. "
            "In the project's environment: make jvm"
        )
    if str(ROOT / "src") not in sys.path:
        sys.path.insert(0, str(ROOT / "src"))
    from lakefeed import jars
    from lakefeed.errors import LakefeedError

    try:
        locked = jars.fetch(["spark", "kinesis"])
    except LakefeedError as error:
        raise BuildFailed(str(error)) from error
    return [*sorted((Path(spec.origin).parent / "jars").glob("*.jar")), *locked]


def _compile(classes: Path) -> None:
    javac = shutil.which("javac")
    if javac is None:
        raise BuildFailed(f"javac is not on the PATH; install a JDK of version {RELEASE}, not only a Java runtime")
    sources = sorted(str(path) for path in (SOURCES / "java").rglob("*.java"))
    class_path = ":".join(str(path) for path in _class_path())
    command = [javac, "--release", RELEASE, "-encoding", "UTF-8", "-proc:none", "-g", LINT, "-Werror"]
    ran = subprocess.run(
        [*command, "-d", str(classes), "-cp", class_path, *sources],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise BuildFailed(f"javac failed:\n{ran.stdout}{ran.stderr}")


def _pack(classes: Path, digest: str, target: Path) -> None:
    entries = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for root in (classes, SOURCES / "resources")
        for path in root.rglob("*")
        if path.is_file()
    }
    entries[DIGEST] = digest.encode()
    manifest = b"Manifest-Version: 1.0\r\nAutomatic-Module-Name: io.lakefeed\r\n\r\n"
    with zipfile.ZipFile(target, "w") as jar:
        for name, content in [("META-INF/MANIFEST.MF", manifest), *sorted(entries.items())]:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            jar.writestr(entry, content)


def main() -> int:
    """The command; exit status 1 if the jar cannot be built."""
    try:
        build(force="--force" in sys.argv[1:])
    except BuildFailed as failed:
        print(failed, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
