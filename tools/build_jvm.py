"""Build lakefeed-jvm.jar from jvm/, and the plug-ins' jars, with only a JDK: ``python tools/build_jvm.py [--force]``.

With ``--spark 3.5 --scala 2.12`` it builds the decoder and the checkpoint manager for an older line of Spark instead.

A plug-in has its Java code in ``packages/<part>/jvm`` and its jar in its Python package; the bench has both in
``bench``. The class path has the same jars as at run time: PySpark's and the locked ones. Equal sources give an equal
jar. A jar contains the digest of its sources, and is rebuilt when they change.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "jvm" / "src" / "main"
SHIMS = ROOT / "jvm" / "shims"
"""The folders ``spark-<line>`` with the classes that differ between Spark's lines."""
LINE = ("4.1", "2.13")
"""The versions of Spark and Scala that lakefeed runs on."""
JAR = ROOT / "src" / "lakefeed" / "lakefeed-jvm.jar"
DIGEST = "META-INF/lakefeed-sources.sha256"
RELEASE = "17"
# Warnings of the kind "classfile" are off: Scala's class files refer to annotations that are not on the class path.
LINT = "-Xlint:all,-classfile,-path,-processing"
# Demands a comment on public and protected types, and valid links and tags in comments.
DOCLINT = "-Xdoclint:all/protected"
# Matches warnings about missing tags, and about members without a comment: many comments would only repeat the name.
OPTIONAL = re.compile(r"warning: no (?:@(?:param|return|throws)|comment\n(?!.*\b(?:class|interface|record|enum) \w))")
# The time stamp of all entries: the earliest that a ZIP file can store.
EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Module:
    """The folder of a jar's sources (with ``java`` and ``resources``), the jar, and the jar's Java module name.

    ``line`` are the versions of Spark and Scala that the jar refuses to run without.
    """

    sources: Path
    jar: Path
    name: str
    line: tuple[str, str] | None = None

    @classmethod
    def of_plugin(cls, folder: Path) -> Module:
        """Return the module of ``packages/<part>`` or of the bench."""
        part = folder.name
        jar = folder / "src" / f"lakefeed_{part}" / f"lakefeed-{part}.jar"
        return cls(folder / "jvm" / "src" / "main", jar, f"io.lakefeed.{part}")

    def jar_groups(self) -> list[str]:
        """Return the groups of the plug-in's own locked jars, which its classes may use."""
        lock = self.jar.parent / "jars.lock"
        artifacts = json.loads(lock.read_text())["artifacts"] if lock.exists() else []
        return sorted({group for artifact in artifacts for group in artifact["groups"]})


_PARTS = [*(folder.parent for folder in sorted(ROOT.glob("packages/*/jvm"))), ROOT / "bench"]
PLUGINS = tuple(map(Module.of_plugin, _PARTS))


class BuildFailed(Exception):
    """A jar or its tests cannot be built."""


def build(*, force: bool = False, say: Callable[[str], None] = print) -> Path:
    """Build the jars whose sources have changed, or all with ``force``; return the core's jar.

    Args:
        say: called with a line of text about each jar.

    Raises:
        BuildFailed: there is no JDK or no PySpark, or the sources do not compile.
    """
    _build(Module(SOURCES, JAR, "io.lakefeed", LINE), sources_digest(), [], (), force=force, say=say)
    for plugin in PLUGINS:
        # The digest includes the core's sources, because the plug-ins' classes use the core's classes.
        digest = digest_of(plugin.sources, sources_digest())
        _build(plugin, digest, [JAR], plugin.jar_groups(), force=force, say=say)
    return JAR


def _build(
    module: Module, digest: str, on: list[Path], groups: Sequence[str], *, force: bool, say: Callable[[str], None]
) -> None:
    jar = module.jar
    if not force and built_from(jar) == digest:
        say(f"{jar.name} is up to date")
        return
    with tempfile.TemporaryDirectory(prefix="lakefeed-jvm-") as classes:
        sources = [module.sources / "java", *([shims_of(module.line[0])] if module.line else [])]
        files = sorted(str(path) for folder in sources for path in folder.rglob("*.java"))
        compile_classes(files, Path(classes), [*on, *class_path(*groups)], DOCLINT)
        pack(module, Path(classes), digest)
    say(f"{jar.name} built, {jar.stat().st_size} bytes")


def shims_of(spark: str) -> Path:
    return SHIMS / f"spark-{spark}"


def sources_digest() -> str:
    """Return the SHA-256 of the core's Java sources together with the compiler's options."""
    return digest_of(SOURCES, f"{RELEASE} {LINT} {DOCLINT}", digest_of(shims_of(LINE[0])))


def digest_of(folder: Path, *others: str) -> str:
    """Return the SHA-256 of all files below a folder, and of further texts."""
    digest = hashlib.sha256("\n".join([*others, ""]).encode())
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def built_from(jar: Path) -> str | None:
    """Return the digest of the sources from which a jar was built; None if there is no complete jar."""
    try:
        with zipfile.ZipFile(jar) as built:
            return built.read(DIGEST).decode()
    except (FileNotFoundError, KeyError, zipfile.BadZipFile):
        return None


def class_path(*groups: str) -> list[Path]:
    """Return PySpark's jars, and the locked jars of "spark", "kinesis" and the given groups.

    Raises:
        BuildFailed: PySpark is missing, or a jar cannot be fetched.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise BuildFailed(
            "PySpark is not installed for this Python, and the Java code needs its jars. "
            "Next: run  make jvm,  which uses the project's environment"
        )
    if str(ROOT / "src") not in sys.path:
        sys.path.insert(0, str(ROOT / "src"))
    from lakefeed.clients.spark import jars
    from lakefeed.errors import LakefeedError

    try:
        locked = jars.fetch(["spark", "kinesis", *groups])
    except LakefeedError as error:
        raise BuildFailed(str(error)) from error
    return [*sorted((Path(spec.origin).parent / "jars").glob("*.jar")), *locked]


def compile_classes(files: Sequence[str], classes: Path, on: list[Path], *options: str) -> None:
    """Compile Java files into the folder ``classes``, with the class path ``on`` and options of javac.

    Raises:
        BuildFailed: there is no JDK, or javac reports an error or a warning.
    """
    javac = shutil.which("javac")
    if javac is None:
        raise BuildFailed(f"javac is not on the PATH; install a JDK of version {RELEASE}, not only a Java runtime")
    # By default javac reports only 100 warnings, of which the ignored warnings about optional tags could be all.
    command = [javac, "--release", RELEASE, "-encoding", "UTF-8", "-proc:none", "-g", "-Xmaxwarns", "10000", LINT]
    ran = subprocess.run(
        [*command, *options, "-d", str(classes), "-cp", ":".join(map(str, on)), *files],
        capture_output=True,
        text=True,
        check=False,
    )
    findings = _findings(ran.stdout + ran.stderr)
    if ran.returncode != 0 or findings:
        raise BuildFailed("javac failed:\n" + ("".join(findings) or ran.stdout + ran.stderr))


def _findings(output: str) -> list[str]:
    """Split javac's output into errors and warnings, without the warnings that ``OPTIONAL`` matches."""
    texts = re.split(r"^(?=\S*?\.java:\d+: |(?:warning|error): )", output, flags=re.MULTILINE)
    kinds = ("error: ", "warning: ")
    return [text for text in texts if any(kind in text for kind in kinds) and not OPTIONAL.search(text)]


def pack(module: Module, classes: Path, digest: str, resources: Sequence[str] = ("**/*",)) -> None:
    """Write a module's jar from its compiled classes, and the resources whose path matches one of the patterns."""
    entries = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for root, patterns in ((classes, ("**/*",)), (module.sources / "resources", resources))
        for pattern in patterns
        for path in root.glob(pattern)
        if path.is_file()
    }
    entries[DIGEST] = digest.encode()
    if module.line is not None:
        spark, scala = module.line
        entries["io/lakefeed/spark-line.properties"] = f"spark={spark}\nscala={scala}\n".encode()
    manifest = f"Manifest-Version: 1.0\r\nAutomatic-Module-Name: {module.name}\r\n\r\n".encode()
    # Write a partial file and rename it to the jar: a running process may read the old jar.
    partial = module.jar.with_suffix(".jar.partial")
    try:
        with zipfile.ZipFile(partial, "w") as jar:
            for name, content in [("META-INF/MANIFEST.MF", manifest), *sorted(entries.items())]:
                entry = zipfile.ZipInfo(name, EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                jar.writestr(entry, content)
        partial.replace(module.jar)
    finally:
        partial.unlink(missing_ok=True)


def main() -> int:
    options = argparse.ArgumentParser(description="Build the jars of lakefeed.")
    options.add_argument("--force", action="store_true", help="build jars that are up to date, too")
    options.add_argument("--spark", help="build the jar for this older line of Spark")
    options.add_argument("--scala", default="2.13", help="the line's version of Scala; default 2.13")
    given = options.parse_args()
    if given.spark is not None:
        sys.path[:0] = [str(ROOT), str(ROOT / "src")]
        from tools import spark_lines

        return spark_lines.main(given.spark, given.scala)
    try:
        build(force=given.force)
    except BuildFailed as failed:
        print(failed, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
