"""Build the decoder and the checkpoint manager for Spark 3.5 and 4.0, each in an environment with that Spark.

The sources are those of ``lakefeed-jvm.jar``. A class in a line's folder in ``jvm/shims`` replaces the class of the
same name of newer lines.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lakefeed.clients.spark.jars import fetch, read_lock
from tools.build_jvm import (
    DOCLINT,
    LINT,
    RELEASE,
    ROOT,
    SHIMS,
    SOURCES,
    BuildFailed,
    Module,
    built_from,
    class_path,
    compile_classes,
    digest_of,
    pack,
)
from tools.environments import environment

PARTS = ("SparkLine", "decode/DecodeCatalog", "checkpoint/ObjectStoreCheckpointFileManager")
"""The classes of a jar; javac adds the classes that they use."""
_HADOOP = ("hadoop-client-api-", "hadoop-client-runtime-")


@dataclass(frozen=True)
class Line:
    """A line of Spark, its Scala, the PySpark that it is built and tested with, and the line's folders of shims."""

    spark: str
    scala: str
    pyspark: str
    shims: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.spark}_{self.scala}"

    @property
    def jar(self) -> Path:
        return ROOT / "build" / f"lakefeed-spark-{self.name}.jar"


LINES = (
    Line("3.5", "2.12", "3.5.9", ("3.5", "4.0", "4.1")),
    Line("4.0", "2.13", "4.0.5", ("4.0", "4.1")),
)


def line(spark: str, scala: str) -> Line:
    """Return the line with these versions.

    Raises:
        BuildFailed: there is none.
    """
    for each in LINES:
        if (each.spark, each.scala) == (spark, scala):
            return each
    raise BuildFailed(
        f"there is no jar for Spark {spark} with Scala {scala}: choose {', '.join(each.name for each in LINES)}"
    )


def build(line: Line) -> Path:
    """Build a line's jar unless its sources have not changed; return the jar."""
    shims = [SHIMS / f"spark-{each}" for each in line.shims]
    digest = digest_of(SOURCES, RELEASE, LINT, DOCLINT, line.name, *map(digest_of, shims))
    if built_from(line.jar) == digest:
        return line.jar
    spark = install(line)
    sourcepath = ":".join(map(str, [*shims, SOURCES / "java"]))
    files = [str(SOURCES / "java" / "io" / "lakefeed" / f"{part}.java") for part in PARTS]
    on = [*libraries(line), *sorted((spark.home / "jars").glob("*.jar"))]
    with tempfile.TemporaryDirectory(prefix="lakefeed-jvm-") as classes:
        compile_classes(files, Path(classes), on, DOCLINT, "-sourcepath", sourcepath, "-implicit:class")
        module = Module(SOURCES, line.jar, "io.lakefeed", (line.spark, line.scala))
        pack(module, Path(classes), digest, resources=("io/**/*", "META-INF/**/*"))
    return line.jar


@dataclass(frozen=True)
class Installed:
    """A Python with the line's PySpark, and the folder of Spark, with ``jars``."""

    python: Path
    home: Path


def install(line: Line) -> Installed:
    """Install the line's PySpark in an environment of its own."""
    python = environment(f"spark-{line.spark}", f"pyspark=={line.pyspark}", "setuptools<81")
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    home = python.parents[1] / "lib" / minor / "site-packages" / "pyspark"
    return Installed(python, home)


def libraries(line: Line) -> list[Path]:
    """Return the jars that a job needs beside Spark's: Hadoop 3.4.2, S3A, and Spark's connectors to Kafka and Avro."""
    newer = [path for path in class_path() if path.name.startswith(_HADOOP)]
    fetch(["spark"])
    others = [
        artifact.path
        for artifact in read_lock().of(["spark"])
        if not artifact.coordinate.startswith(("org.apache.spark:", "org.apache.iceberg:"))
    ]
    return [*newer, *others, *fetch([f"test-spark-{line.name}"])]


def main(spark: str, scala: str) -> int:
    """Build the jar for these versions; return the exit status."""
    try:
        print(build(line(spark, scala)))
    except BuildFailed as failed:
        print(failed, file=sys.stderr)
        return 1
    return 0
