"""The JVM module (``lakefeed-jvm.jar``) as Python sees it: where it is, and its switches and counters."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.errors import LakefeedError

if TYPE_CHECKING:
    from pydantic import SecretStr
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class S3Traffic:
    """What driver and executors have exchanged with S3 since the driver's JVM began.

    Attributes:
        bytes_out: bytes of request bodies.
        bytes_in: bytes of answers' bodies, as their headers tell.
        errors: answers with HTTP status 400 or above, and attempts without an answer.
    """

    bytes_out: int
    bytes_in: int
    errors: int


def jar() -> Path:
    """The JVM module's jar; it must be on the class path of the driver and of the executors.

    Raises:
        LakefeedError: it has not been built.
    """
    path = Path(str(files("lakefeed") / "lakefeed-jvm.jar"))
    if not path.is_file():
        raise LakefeedError("lakefeed's JVM module has not been built", where=str(path), hint="make jvm")
    return path


def put_credentials(spark: SparkSession, name: str, *, username: str, password: SecretStr) -> None:
    """Makes a user name and password known to the JVM functions under ``name``.

    They stay in the driver's memory, and reach executors only inside serialised tasks: never in a Spark
    setting, a plan, a log or on a command line. Putting them again replaces them for queries started later.
    """
    java(spark).Secrets.put(name, f"{username}:{password.get_secret_value()}")


def put_secret(spark: SparkSession, name: str, secret: SecretStr) -> None:
    """Makes one secret known to the JVM module under ``name``; kept as ``put_credentials`` keeps those."""
    java(spark).Secrets.put(name, secret.get_secret_value())


def has_credentials(spark: SparkSession, name: str) -> bool:
    """Whether ``put_credentials`` has been called with this name."""
    return bool(java(spark).Secrets.has(name))


def kept_rows(persisted: DataFrame) -> DataFrame:
    """The same rows without the plan of how they came about, for a statement that reads them twice."""
    own: Any = persisted
    spark = persisted.sparkSession
    return type(persisted)(java(spark).query.KeptRows.of(own._jdf), spark)


def s3_requests(spark: SparkSession) -> dict[str, int]:
    """The HTTP requests that driver and executors have sent to S3 since the driver's JVM began, by S3 operation.

    Every attempt counts, retries too, of S3A and of Iceberg's S3FileIO alike. Executors in other JVMs tell their
    counts when a task ends and once a second (``lakefeed.feed.progress`` has them by key class and location).
    """
    return {str(name): int(count) for name, count in dict(java(spark).s3.RequestMeter.snapshot()).items()}


def s3_traffic(spark: SparkSession) -> S3Traffic:
    """Bytes and errors of the requests that ``s3_requests`` counts."""
    traffic = dict(java(spark).s3.RequestMeter.traffic())
    return S3Traffic(bytes_out=traffic["bytes_out"], bytes_in=traffic["bytes_in"], errors=traffic["errors"])


def java(spark: SparkSession) -> Any:
    """The package ``io.lakefeed`` in the driver's JVM."""
    gateway: Any = spark._jvm
    return gateway.io.lakefeed


def cause_of(refused: Any) -> str:
    """The first line of what an exception out of the JVM says: its deepest cause's message, not the wrappers'.

    Args:
        refused: a ``Py4JJavaError`` or a ``PySparkException``.
    """
    cause = getattr(refused, "java_exception", None) or getattr(refused, "_origin", None)
    if cause is None:
        return str(refused).splitlines()[0]
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getMessage() or cause.toString()).splitlines()[0]
