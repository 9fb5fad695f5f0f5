"""Avro values through the JVM decoder; see ``io.lakefeed.decode.DecodeFunction`` for what it does with a record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakefeed.clients.spark import jvm
from lakefeed.errors import ConfigError
from lakefeed.records.spec import ConfluentAvro, PlainAvro, RegisteredFormat, registry_address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CATALOG_CLASS = "io.lakefeed.decode.DecodeCatalog"


def with_decoded(records: DataFrame, spec: ConfluentAvro | PlainAvro) -> DataFrame:
    """``records`` and the column ``decoded``.

    Raises:
        ConfigError: a schema that Avro or Spark refuses, or credentials that were not put.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as sf

    options = _options(records.sparkSession, spec)
    catalog = function_catalog(records.sparkSession, options)
    try:
        return records.withColumn("decoded", sf.expr(f"{catalog}.decode(value)"))
    except (PySparkException, Py4JJavaError) as refused:
        raise _refused(refused, spec) from None


def function_catalog(spark: SparkSession, options: Mapping[str, str] | None = None) -> str:
    """The name of a catalog of the decoder's functions with these options, made if it is not there.

    Spark configures functions through their catalog only, and reads a catalog's options once. So each set of
    options has its own catalog, named after their digest.
    """
    options = dict(options or {})
    digest = hashlib.sha256(repr(sorted(options.items())).encode()).hexdigest()[:16]
    name = f"lakefeed_decode_{digest}"
    key = f"spark.sql.catalog.{name}"
    for option, value in options.items():
        spark.conf.set(f"{key}.{option}", value)
    spark.conf.set(key, CATALOG_CLASS)
    return name


def _options(spark: SparkSession, spec: ConfluentAvro | PlainAvro) -> dict[str, str]:
    if isinstance(spec, PlainAvro):
        return {
            "writer-schema": spec.writer_schema,
            "reader-schema": spec.reader_schema or spec.writer_schema,
        }
    return registry_options(spark, spec)


def registry_options(spark: SparkSession, spec: RegisteredFormat) -> dict[str, str]:
    """Options of a decoder that asks the registry, for every format.

    Raises:
        ConfigError: credentials that were not put.
    """
    options = {
        "registry-url": registry_address(spec.registry_url),
        "reader-schema": spec.reader_schema,
        "registry-patience-seconds": str(spec.registry_patience_seconds),
        "accept": spec.accept,
    }
    if spec.subjects:
        options["subjects"] = json.dumps(spec.subjects)
    if spec.credentials is not None:
        if not jvm.has_credentials(spark, spec.credentials):
            raise ConfigError(
                "The schema registry's credentials are not known to the JVM",
                where=f"credentials {spec.credentials!r}",
                hint="lakefeed.jvm.put_credentials(spark, name, username=…, password=…) first",
            )
        options["credentials"] = spec.credentials
    return options


def _refused(error: Any, spec: ConfluentAvro | PlainAvro) -> ConfigError:
    cause = error.java_exception.getMessage() if hasattr(error, "java_exception") else str(error)
    return ConfigError(
        f"The Avro schema cannot be used: {str(cause).splitlines()[0]}",
        where=f"{type(spec).__name__}.reader_schema",
        hint="it must be a valid Avro schema (JSON)",
    )
