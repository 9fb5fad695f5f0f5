"""Python's access to the JVM module (``lakefeed-jvm.jar``): its path, functions and counters."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.config.base import ConfigProblems
from lakefeed.config.blocks import InstalledSource, SinkChoice, Source
from lakefeed.config.decoding import Encoded, InstalledFormat
from lakefeed.config.sinks import SinkConfig
from lakefeed.errors import LakefeedError
from lakefeed.lazy import DataFrame, SparkSession
from lakefeed.plugins import installed_kinds

if TYPE_CHECKING:
    from pydantic import SecretStr


def jar() -> Path:
    """Return the path of the JVM module's jar, for the class path of the driver and of the executors."""
    path = Path(str(files("lakefeed") / "lakefeed-jvm.jar"))
    if not path.is_file():
        raise LakefeedError("lakefeed's JVM module has not been built", where=str(path), hint="make jvm")
    return path


def installed_jars() -> list[Path]:
    """Return the jars of all installed sinks, sources and formats: one session, with one class path, may run many.

    Jars of a broken package are left out; a feed that uses the package is refused.
    """
    found = []
    for choice in (SinkChoice, Source, Encoded):
        for name in installed_kinds(choice.group):
            with suppress(ConfigProblems, LakefeedError):
                settings = choice.installed_kind(name)
                found += [] if settings is None else jars_of(settings)
    return found


def jars_of(settings: type[SinkConfig | InstalledSource | InstalledFormat]) -> list[Path]:
    """Return the jars in the package of a sink, source or format."""
    return [jar_of(name) for name in settings.jars]


def jar_of(name: str) -> Path:
    """Return the path of a package's jar, given as ``package/name.jar``.

    Raises:
        LakefeedError: the jar is missing.
    """
    package, _, file = name.partition("/")
    path = Path(str(files(package) / file))
    if not path.is_file():
        hint = f"reinstall {package}; in a checkout: make jvm"
        raise LakefeedError("a jar of the package is missing", where=str(path), hint=hint)
    return path


def put_credentials(spark: SparkSession, name: str, *, username: str, password: SecretStr) -> None:
    """Give a user name and password to the JVM functions under ``name``.

    They stay in the driver's memory, and reach executors only inside serialised tasks: never in a Spark setting, a
    plan, a log or on a command line. A second call with the same name replaces them for queries that start later.
    """
    java(spark).Secrets.put(name, f"{username}:{password.get_secret_value()}")


def put_secret(spark: SparkSession, name: str, secret: SecretStr) -> None:
    """Give one secret to the JVM module under ``name``; it is stored like the credentials of ``put_credentials``."""
    java(spark).Secrets.put(name, secret.get_secret_value())


def has_credentials(spark: SparkSession, name: str) -> bool:
    """Check that ``put_credentials`` was called with this name."""
    return bool(java(spark).Secrets.has(name))


def function_catalog(spark: SparkSession, class_name: str, options: Mapping[str, str]) -> str:
    """Register a catalog of JVM functions with these options, and return its name.

    Spark configures functions only through their catalog, and reads a catalog's options only once. So every set of
    options gets its own catalog, named after the options' digest.
    """
    # Encoded, since Spark would replace ${env:NAME} and ${system:name} in a schema's text when it reads the options.
    encoded = base64.b64encode(json.dumps(dict(options), sort_keys=True).encode()).decode()
    digest = hashlib.sha256(encoded.encode()).hexdigest()[:16]
    name = f"lakefeed_{class_name.rpartition('.')[2].removesuffix('Catalog').lower()}_{digest}"
    spark.conf.set(f"spark.sql.catalog.{name}.encoded", encoded)
    spark.conf.set(f"spark.sql.catalog.{name}", class_name)
    return name


@contextmanager
def spark_setting(session: SparkSession, name: str, value: str) -> Iterator[None]:
    """Set an option of Spark's session within a block."""
    before = str(session.conf.get(name))
    session.conf.set(name, value)
    try:
        yield
    finally:
        session.conf.set(name, before)


def kept_rows(shuffled: DataFrame) -> DataFrame:
    """Return the same rows without the plan that made them, so that statements read the files of its last shuffle."""
    own: Any = shuffled
    spark = shuffled.sparkSession
    return type(shuffled)(java(spark).query.KeptRows.of(own._jdf), spark)


def s3_requests(spark: SparkSession) -> dict[str, int]:
    """Return the number of HTTP requests of driver and executors to S3 since the driver's JVM began, by S3 operation.

    Every attempt counts, including retries, of both S3A and Iceberg's S3FileIO. Executors in other JVMs send their
    counts at the end of a task and once a second (``lakefeed.feed.progress`` has them by key class and location).
    """
    return {str(name): int(count) for name, count in dict(java(spark).s3.RequestMeter.snapshot()).items()}


def java(spark: SparkSession) -> Any:
    """Return the package ``io.lakefeed`` in the driver's JVM."""
    global _package
    gateway: Any = spark._jvm
    if _package is None or _package._gateway is not gateway:
        _package = _Names(gateway, gateway.io.lakefeed)
    return _package


class _Names:
    """Caches the JVM's classes and packages by name: py4j would ask the JVM about every part of a name at every use."""

    def __init__(self, gateway: Any, found: Any) -> None:
        self._gateway = gateway
        self._found = found

    def __getattr__(self, name: str) -> Any:
        from py4j.java_gateway import JavaClass, JavaMember, JavaPackage

        found = getattr(self._found, name)
        if isinstance(found, JavaPackage | JavaClass):
            found = _Names(self._gateway, found)
        if isinstance(found, _Names | JavaMember):
            # The next access finds the attribute without calling this method.
            self.__dict__[name] = found
        return found

    def __call__(self, *arguments: Any) -> Any:
        """Construct an object if the name is a class."""
        return self._found(*arguments)


_package: _Names | None = None


def cause_of(refused: Any) -> str:
    """Return the first line of the deepest cause's message, for a ``Py4JJavaError`` or a ``PySparkException``."""
    cause = getattr(refused, "java_exception", None) or getattr(refused, "_origin", None)
    if cause is None:
        return str(refused).strip().splitlines()[0]
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getMessage() or cause.toString()).strip().splitlines()[0]
