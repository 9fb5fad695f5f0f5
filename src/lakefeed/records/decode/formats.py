"""Adds the column ``decoded`` to records. ``io.lakefeed.decode.DecodeFunction`` decodes in the JVM."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from lakefeed.clients.spark import jvm
from lakefeed.config.decoding import UNKNOWN_FIELDS, ExpressionFormat, JavaFormat
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.lazy import Column, DataFrame, SparkSession, StructType, py4j, sf, spark_errors, t
from lakefeed.records import spec as specs
from lakefeed.records.decode.avro_schema import avro_schema_of_protobuf
from lakefeed.records.schema.fit import refuse_same_but_for_case
from lakefeed.records.schema.parse import require_usable
from lakefeed.records.spec import DecodeSpec

KEY = "decoded_key"
"""The column with the decoded key: a struct of the key's fields, or the key itself for a format without fields."""

_RESULT = "_lakefeed_key"
_VALUE = "_lakefeed_value"


def decoded(records: DataFrame, spec: DecodeSpec, *, key: DecodeSpec | None = None) -> DataFrame:
    """Add the column ``decoded: struct<value, schema_id, error>`` to a batch or a stream.

    An unreadable record gets an ``error``; the job continues. A schema registry that does not answer stops the job: see
    ``registry_error_of``.

    Args:
        records: have the column ``value`` (bytes), as from Spark's Kafka source.
        spec: the encoding of the values.
        key: the encoding of the keys (column ``key``). If given, the column ``decoded_key`` is added; a record with an
            unreadable key gets an ``error``.

    Raises:
        ConfigError: a schema cannot be used, or the JVM does not have the credentials.
    """
    result = _with_value(records, spec)
    return result if key is None else _with_key(result, key)


def _with_value(records: DataFrame, spec: DecodeSpec, part: specs.Part = "value") -> DataFrame:
    if isinstance(spec, specs.Raw):
        value, nothing = sf.when(sf.col("value").isNotNull(), sf.struct("value")), sf.lit(None)
        return with_result(records, value, schema_id=nothing.cast("int"), error=nothing.cast("string"))
    if isinstance(spec, ExpressionFormat):
        return _by_expression(records, spec)
    options = decoder_options(records.sparkSession, spec, part)
    catalog = jvm.function_catalog(records.sparkSession, "io.lakefeed.decode.DecodeCatalog", options)
    try:
        has_ids = isinstance(spec, specs.RegisteredFormat) and "headers" in records.columns
        arguments = ["value", "headers"] if has_ids else ["value"]
        return records.withColumn("decoded", sf.call_function(f"{catalog}.decode", *map(sf.col, arguments)))
    except (spark_errors.PySparkException, py4j.Py4JJavaError) as refused:
        is_avro = isinstance(spec, specs.ConfluentAvro | specs.PlainAvro)
        raise ConfigError(
            f"The {'Avro schema' if is_avro else 'schema'} cannot be used: {jvm.cause_of(refused)}",
            where=f"{type(spec).__name__}.reader_schema" if is_avro else type(spec).__name__,
            hint="give a valid Avro schema (JSON)" if is_avro else "correct the schema in its file or in the registry",
        ) from None


def _by_expression(records: DataFrame, spec: ExpressionFormat) -> DataFrame:
    """Decode by an installed package's expression; a record for which it returns only nulls gets an error."""
    name = getattr(spec.decode, "__qualname__", repr(spec.decode))
    try:
        result = records.withColumn("decoded", sf.when(sf.col("value").isNotNull(), spec.decode(sf.col("value"))))
        returned = result.schema["decoded"].dataType.simpleString()
    except spark_errors.PySparkException as refused:
        what = f"the format's expression cannot be used: {jvm.cause_of(refused)}"
        raise ConfigError(what, where=name, hint="correct the package that has this function") from None
    if not re.fullmatch(r"struct<value:struct<.+>,error:string>", returned):
        what = f"the format's expression returns {returned} instead of struct<value: struct<…>, error: string>"
        raise ConfigError(what, where=name, hint="correct the package that has this function")
    value, error = sf.col("decoded.value"), sf.col("decoded.error")
    nothing = sf.when(sf.col("value").isNotNull() & value.isNull(), "the format returns neither a value nor an error")
    error = sf.coalesce(error, nothing)
    return with_result(result, sf.when(error.isNull(), value), schema_id=sf.lit(None).cast("int"), error=error)


def _with_key(records: DataFrame, spec: DecodeSpec) -> DataFrame:
    """Add the column ``KEY`` to decoded records; for an unreadable key, add an error that begins with ``key:``."""
    decoded = sf.col("decoded")
    as_values = records.withColumnsRenamed({"value": _VALUE, "key": "value", "decoded": KEY})
    keyed = _with_value(as_values, spec, "key").withColumnsRenamed(
        {"value": "key", _VALUE: "value", "decoded": _RESULT, KEY: "decoded"}
    )
    key_error = sf.col(f"{_RESULT}.error")
    value = sf.when(key_error.isNull(), decoded["value"])
    error = sf.coalesce(decoded["error"], sf.concat(sf.lit("key: "), key_error))
    key = sf.col(f"{_RESULT}.value.value" if _has_one_value(spec) else f"{_RESULT}.value")
    both = with_result(keyed, value, schema_id=decoded["schema_id"], error=error)
    return both.withColumn(KEY, key).drop(_RESULT)


def with_result(records: DataFrame, value: Column, *, schema_id: Column, error: Column) -> DataFrame:
    """Add or replace the column ``decoded``."""
    parts = value.alias("value"), schema_id.alias("schema_id"), error.alias("error")
    return records.withColumn("decoded", sf.struct(*parts))


def _has_one_value(spec: DecodeSpec) -> bool:
    """Return whether the format has no fields: then the struct of a decoded key has the whole key as its only field."""
    match spec:
        case specs.String() | specs.Raw():
            return True
        case (
            specs.ConfluentAvro(reader_schema=text)
            | specs.PlainAvro(reader_schema=str(text))
            | specs.PlainAvro(writer_schema=text)
        ):
            schema = json.loads(text)
            return not isinstance(schema, dict) or schema.get("type") != "record"
    return False


def decoder_options(spark: SparkSession, spec: DecodeSpec, part: specs.Part = "value") -> dict[str, str]:
    """Return the options for ``DecodeOptions.java``; ``Raw``, which needs no decoder, has none."""
    options: dict[str, str] = {}
    if isinstance(spec, specs.RegisteredFormat):
        options = {**_registry_options(spark, spec), "id-headers": part}
    if isinstance(spec, specs.ConfluentJson | specs.Json):
        options |= {"lenient": json.dumps(spec.lenient), "unknown-field": spec.unknown_fields}
    match spec:
        case specs.ConfluentAvro():
            return options
        case specs.PlainAvro():
            return {"writer-schema": spec.writer_schema, "reader-schema": spec.reader_schema or spec.writer_schema}
        case specs.ConfluentProtobuf():
            options["format"] = "protobuf"
        case specs.PlainProtobuf():
            options |= {"format": "protobuf", **_protobuf_options(spark, spec)}
        case specs.ConfluentJson():
            options["format"] = "json"
        case specs.Json():
            options["refused-fields"] = json.dumps(sorted(spec.refused_fields))
            options |= {"format": "json", "reader-type": _json_type(spark, spec).json()}
            options["whole"] = json.dumps(spec.whole)
        case JavaFormat():
            columns = _table_type(spark, spec.schema, of=spec.name).json()
            options |= {**spec.options, "format": spec.reader, "reader-type": columns}
        case specs.String():
            options["format"] = "string"
    return {**options, "time-zone": str(spark.conf.get("spark.sql.session.timeZone"))}


def _registry_options(spark: SparkSession, spec: specs.RegisteredFormat) -> dict[str, str]:
    options = {
        "registry-url": specs.registry_address(spec.registry_url),
        "reader-schema": spec.reader_schema,
        "registry-patience-seconds": str(spec.registry_patience_seconds),
        "accept": spec.accept,
    }
    if spec.subject is not None:
        options["subject"] = spec.subject
    if spec.glue is not None:
        options["glue"] = spec.glue
    if spec.subjects:
        options["subjects"] = json.dumps(spec.subjects)
    if spec.credentials is not None:
        if not jvm.has_credentials(spark, spec.credentials):
            what = "The JVM does not have the schema registry's credentials"
            hint = "first call lakefeed.jvm.put_credentials(spark, name, username=…, password=…)"
            raise ConfigError(what, where=f"credentials {spec.credentials!r}", hint=hint)
        options["credentials"] = spec.credentials
    return options


def _protobuf_options(spark: SparkSession, spec: specs.PlainProtobuf) -> dict[str, str]:
    reader = avro_schema_of_protobuf(spark, spec.schema, references=spec.references, message=spec.message)
    options = {"reader-schema": reader}
    if spec.message is not None:
        options["message"] = spec.message
    if isinstance(spec.schema, bytes):
        return {**options, "writer-set": base64.b64encode(spec.schema).decode()}
    return {**options, "writer-schema": spec.schema, "writer-references": json.dumps(spec.references)}


def _json_type(spark: SparkSession, spec: specs.Json) -> StructType:
    """Return the columns of JSON records, including the column of unknown fields if the pipeline has it."""
    of_json = t.VariantType() if spec.variants else t.StringType()
    if spec.whole:
        return t.StructType().add("value", of_json)
    columns = _table_type(spark, spec.schema, of="JSON")
    if spec.unknown_fields != "variant":
        return columns
    if taken := next((name for name in columns.names if name.lower() == UNKNOWN_FIELDS), None):
        what = f"the column {taken} would be there twice: on_unknown_field: variant adds it"
        raise ConfigError(what, where=spec.schema[:120], hint="give the column another name in the records")
    return columns.add(UNKNOWN_FIELDS, of_json)


def _table_type(spark: SparkSession, text: str, *, of: str) -> StructType:
    """Return the Spark type of a schema: DDL, an Avro record schema or the JSON of a StructType."""
    try:
        java: Any = spark._jvm
        if text.lstrip().startswith("{"):
            document = json.loads(text)
            if document.get("type") == "record":
                require_usable(text)
                # Do not validate names: columns may have names that Avro does not allow.
                parser = java.org.apache.avro.Schema.Parser(java.org.apache.avro.NameValidator.NO_VALIDATION)
                converted = java.org.apache.spark.sql.avro.SchemaConverters.toSqlType(parser.parse(text))
                document = json.loads(str(converted.dataType().json()))
            schema = t.StructType.fromJson(document)
        else:  # Call the JVM's parser, because PySpark's needs an active session in this thread.
            schema = t.StructType.fromJson(json.loads(java.org.apache.spark.sql.types.StructType.fromDDL(text).json()))
    except LakefeedError as unusable:
        raise ConfigError(
            f"The schema for {of} values cannot be used: {unusable.what}", where=text[:120], hint=unusable.hint
        ) from None
    except Exception as unreadable:
        what = f"The schema for {of} values cannot be read: {jvm.cause_of(unreadable)}"
        hint = "give Spark DDL (id BIGINT, name STRING), an Avro record schema or the JSON of a StructType"
        raise ConfigError(what, where=text[:120], hint=hint) from None
    if not schema.fields:
        what = f"The schema for {of} values has no fields"
        raise ConfigError(what, where=text[:120], hint="give at least one column, such as id BIGINT")
    refuse_same_but_for_case(schema, where=f"the schema for {of} values")
    return schema
