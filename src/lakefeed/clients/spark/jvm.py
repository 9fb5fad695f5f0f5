"""Find the jars of lakefeed and its plug-ins, and call the Java classes in ``lakefeed-jvm.jar``."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.errors import LakefeedError
from lakefeed.lazy import DataFrame, SparkSession
from lakefeed.plugins import COMMANDS_GROUP, OF_RUNS, installed

if TYPE_CHECKING:
    from pydantic import SecretStr


def jar() -> Path:
    """Return the path of ``lakefeed-jvm.jar``, which driver and executors need on their class path."""
    path = Path(str(files("lakefeed") / "lakefeed-jvm.jar"))
    if not path.is_file():
        hint = "in a clone: make jvm; otherwise install lakefeed again, from a clone after make jvm"
        raise LakefeedError("lakefeed's JVM module has not been built", where=str(path), hint=hint)
    return path


def installed_jars() -> list[Path]:
    """Return the jars of all installed packages, because the feeds of a session share a class path.

    Jars of a broken package are left out; a feed that uses this package is refused elsewhere.
    """
    entries = [entry for group in (*OF_RUNS, COMMANDS_GROUP) for entry in installed(group)]
    paths: dict[Path, None] = {}
    for package in sorted({entry.module for entry in entries}):
        with suppress(Exception):
            paths |= dict.fromkeys(jars_of(package))
    return list(paths)


def jars_of(module: str) -> list[Path]:
    """Return the jars that the package of a module names in ``JARS``, each as ``package/name.jar``."""
    return [jar_of(name) for name in getattr(import_module(module.partition(".")[0]), "JARS", ())]


def jar_of(name: str) -> Path:
    """Return the path of a package's jar, given as ``package/name.jar``; raise a LakefeedError if it is missing."""
    package, _, file = name.partition("/")
    path = Path(str(files(package) / file))
    if not path.is_file():
        hint = f"reinstall {package}; in a clone: make jvm"
        raise LakefeedError("a jar of the package is missing", where=str(path), hint=hint)
    return path


def put_credentials(spark: SparkSession, name: str, *, username: str, password: SecretStr) -> None:
    """Store a user name and password in the JVM under ``name``, for Java functions that log in.

    Both stay in the driver's memory, and reach executors only in serialized tasks. No Spark setting, plan, log or
    command line contains them. A second call with the same ``name`` replaces them for later queries.
    """
    java(spark).Secrets.put(name, f"{username}:{password.get_secret_value()}")


def put_secret(spark: SparkSession, name: str, secret: SecretStr) -> None:
    """Store one secret in the JVM under ``name``, like ``put_credentials``."""
    java(spark).Secrets.put(name, secret.get_secret_value())


def has_credentials(spark: SparkSession, name: str) -> bool:
    return bool(java(spark).Secrets.has(name))


def function_catalog(spark: SparkSession, class_name: str, options: Mapping[str, str]) -> str:
    """Register a catalog of Java functions with these options, and return its name.

    Spark configures functions only through their catalog, and reads a catalog's options only once. So each set of
    options gets its own catalog, whose name contains a digest of the options.
    """
    # Encode the options in Base64: Spark would replace ${env:NAME} and ${system:name} in a schema's text.
    encoded = base64.b64encode(json.dumps(dict(options), sort_keys=True).encode()).decode()
    digest = hashlib.sha256(encoded.encode()).hexdigest()[:16]
    name = f"lakefeed_{class_name.rpartition('.')[2].removesuffix('Catalog').lower()}_{digest}"
    spark.conf.set(f"spark.sql.catalog.{name}.encoded", encoded)
    spark.conf.set(f"spark.sql.catalog.{name}", class_name)
    return name


@contextmanager
def spark_setting(session: SparkSession, name: str, value: str) -> Iterator[None]:
    before = str(session.conf.get(name))
    session.conf.set(name, value)
    try:
        yield
    finally:
        session.conf.set(name, before)


def kept_rows(shuffled: DataFrame) -> DataFrame:
    """Return a DataFrame that reads the files of ``shuffled``'s last shuffle, so that no statement shuffles again."""
    own: Any = shuffled
    spark = shuffled.sparkSession
    return type(shuffled)(java(spark).query.KeptRows.of(own._jdf), spark)


def java(spark: SparkSession) -> Any:
    """Return the package ``io.lakefeed`` in the driver's JVM."""
    global _package
    gateway: Any = spark._jvm
    if _package is None or _package._gateway is not gateway:
        _package = _Names(gateway, gateway.io.lakefeed)
    return _package


class _Names:
    """Caches the members of a Java package or class: Py4J itself would ask the JVM at every use of a name."""

    def __init__(self, gateway: Any, package_or_class: Any) -> None:
        self._gateway, self._own = gateway, package_or_class

    def __getattr__(self, name: str) -> Any:
        from py4j.java_gateway import JavaClass, JavaMember, JavaPackage

        below = getattr(self._own, name)
        if isinstance(below, JavaPackage | JavaClass):
            below = _Names(self._gateway, below)
        if isinstance(below, _Names | JavaMember):
            # Python calls __getattr__ only for missing attributes, so the next access does not call the JVM.
            self.__dict__[name] = below
        return below

    def __call__(self, *arguments: Any) -> Any:
        return self._own(*arguments)


_package: _Names | None = None


def cause_of(refused: Any) -> str:
    """Return the first line of the deepest cause's message, for a ``Py4JJavaError`` or a ``PySparkException``."""
    cause = getattr(refused, "java_exception", None) or getattr(refused, "_origin", None)
    if cause is None:
        return str(refused).strip().splitlines()[0]
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getMessage() or cause.toString()).strip().splitlines()[0]
