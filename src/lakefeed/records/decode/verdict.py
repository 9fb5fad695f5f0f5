"""Decides whether a decoded record becomes a row or a dead letter, is skipped, or stops the job.

The table and the dead letters use the same decision. On the fast path, ``DecodedReader.accept`` has the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.clients.spark.errors import BAD_TIMESTAMP_REASON, NO_KEY, POSITION
from lakefeed.clients.spark.jvm import spark_setting
from lakefeed.clients.spark.statements import expression
from lakefeed.config.keyed import DELETED, POSITION_COLUMNS, name_taken
from lakefeed.errors import ConfigError, SchemaUnusable
from lakefeed.lazy import Column, DataFrame, sf, spark_errors
from lakefeed.ledger.outcomes import RECORD
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.records.decode.changes import OWN_KEY, DeleteRule, unwrap, with_deleted
from lakefeed.records.decode.formats import KEY
from lakefeed.records.sources import BAD_TIMESTAMP, COPY

if TYPE_CHECKING:
    from lakefeed.records.decode.unavailable import Unavailable

OnError = Literal["fail", "dead_letter"]
OnNull = Literal["fail", "skip", "keep", "dead_letter"]
OnBadTimestamp = Literal["error", "keep"]
METADATA = ("topic", "partition", "offset", "timestamp", "key", "headers", "sequence_number")
"""The metadata of a record that can become columns; ``metadata_column`` returns a column's name."""

METADATA_PREFIX = "kafka_"
"""The prefix of metadata columns. ``_`` is not possible, because Iceberg reserves the name ``_partition``."""

ROW, DEAD_LETTER, SKIPPED, STOP = range(4)
"""The verdicts, with the same numbers as in ``OutcomeFunction.java``."""
VERDICTS = {"fail": STOP, "dead_letter": DEAD_LETTER, "skip": SKIPPED, "drop": SKIPPED, "keep": ROW}

TOMBSTONE = "the value is null (a tombstone)"
"""The reason of a dead letter whose record has no value."""

UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_ANSI = "spark.sql.ansi.enabled"


@dataclass(frozen=True)
class RowExpectation:
    """A rule that all records have to meet.

    Attributes:
        name: the name of the rule in the reasons of dead letters.
        rule: SQL over the row's columns that has to be true; null and an error break the rule, too.
        on_violation: whether to skip the record, make it a dead letter, or stop.
    """

    name: str
    rule: str
    on_violation: Literal["drop", "dead_letter", "fail"]


SinkRule = Callable[["DataFrame"], "Column | None"]
"""A function that returns a column with the reason why the sink refuses a row, null for accepted rows."""


@dataclass(frozen=True, kw_only=True)
class RecordPolicy:
    """The rules for records that cannot become rows.

    Attributes:
        on_error: for an unreadable record.
        on_null: for a null value (a tombstone); ``keep`` makes it a row of nulls.
        on_bad_timestamp: for a timestamp that does not fit Spark's type: with ``error`` the record is unreadable, with
            ``keep`` its row has a null time. Default: ``error`` if the rows have the time.
        expect: the rules for readable records; the first broken rule counts.
        refused_schemas: by id of a writer's schema whose records must not become rows, the reason.
        takes: the types of table columns that Spark does not have, such as ``uuid`` or ``fixed[4]``, by column.
        isolated: by range, why the transform or the sink has failed at its records.
        envelope: the format of the envelope around the values.
        deletes: the rule for records that delete the row of their key; None if rows are only added.
        unavailable: the rule for values that a change event lacks.
        rule: the sink's own rule about which rows it accepts; None if it accepts all rows.
    """

    on_error: OnError = "fail"
    on_null: OnNull = "fail"
    on_bad_timestamp: OnBadTimestamp | None = None
    expect: tuple[RowExpectation, ...] = ()
    refused_schemas: Mapping[int, str] = field(default_factory=dict)
    takes: Mapping[str, str] = field(default_factory=dict)
    isolated: Mapping[OffsetRange, str] = field(default_factory=dict)
    envelope: Literal["debezium"] | None = None
    deletes: DeleteRule | None = None
    unavailable: Unavailable | None = None
    rule: SinkRule | None = None


def metadata_column(name: str) -> str:
    return f"{METADATA_PREFIX}{name}"


def classify(decoded_records: DataFrame, policy: RecordPolicy, *, keep: Sequence[str] = ()) -> DataFrame:
    """Return a DataFrame with the values' fields, the metadata in ``keep``, and the column ``RECORD`` with the verdict.

    The arguments are those of ``rows``. Raises ConfigError if a rule does not fit the columns.
    """
    if policy.envelope is not None:
        decoded_records = unwrap(decoded_records)
    if policy.unavailable is not None:
        decoded_records = policy.unavailable.before_rows(decoded_records)
    _require_metadata(decoded_records, keep, deletes=policy.deletes is not None)
    bad_timestamps = policy.on_bad_timestamp or ("error" if "timestamp" in keep else "keep")
    source = {"key": KEY} if KEY in decoded_records.columns else {}
    metadata = [sf.col(source.get(name, name)).alias(metadata_column(name)) for name in keep]
    of_record = [name for name in decoded_records.columns if name not in ("decoded", KEY)]
    rows = decoded_records.select(
        "decoded.value.*",
        *metadata,
        *([sf.col(KEY).alias(OWN_KEY)] if source and policy.deletes else []),
        sf.struct(
            sf.struct(*of_record).alias("record"),
            sf.col("decoded.schema_id").alias("schema_id"),
            _error(policy, bad_timestamps=bad_timestamps == "error" and BAD_TIMESTAMP in of_record).alias("error"),
            sf.col("decoded.value").isNull().alias("null_value"),
        ).alias(RECORD),
    )
    if policy.deletes is not None:
        rows = with_deleted(rows, policy.deletes, null_value=sf.col(f"{RECORD}.null_value"))
    # Without ANSI mode, a rule such as 1/0 > 2 is null, so the record breaks the rule. In ANSI mode, the division would
    # stop the job.
    with spark_setting(rows.sparkSession, _ANSI, "false"):
        reason, verdict = _verdict(rows, policy)
        with_verdict = sf.struct(
            sf.col(f"{RECORD}.record").alias("record"),
            sf.col(f"{RECORD}.schema_id").alias("schema_id"),
            reason.alias("reason"),
            verdict.alias("verdict"),
        )
        return rows.withColumn(RECORD, with_verdict)


def rows(
    decoded_records: DataFrame,
    *,
    on_null: OnNull = "fail",
    on_bad_timestamp: OnBadTimestamp | None = None,
    keep: Sequence[str] = (),
    envelope: Literal["debezium"] | None = None,
    deletes: DeleteRule | None = None,
    unavailable: Unavailable | None = None,
) -> DataFrame:
    """Return the rows of decoded records; an unreadable record stops the job, and ``decode_error_of`` then names it.

    Args:
        decoded_records: the result of ``decoded``, with the columns topic, partition and offset.
        on_null: the treatment of a null value (a tombstone): ``fail`` stops the job, ``skip`` omits the record,
            ``keep`` makes it a row of nulls. For the other arguments see ``RecordPolicy``.
        keep: names from ``METADATA``; ``offset`` becomes the column ``kafka_offset``.

    Raises:
        ConfigError: ``keep`` has an unknown name, the records lack a column, or a field of the value has the name of
            a metadata column.
    """
    policy = RecordPolicy(
        on_null=on_null, on_bad_timestamp=on_bad_timestamp, envelope=envelope, deletes=deletes, unavailable=unavailable
    )
    record, verdict = sf.col(f"{RECORD}.record"), sf.col(f"{RECORD}.verdict")
    position = sf.format_string(POSITION, record["topic"], record["partition"], record["offset"])
    stop = sf.raise_error(sf.concat(position, sf.lit(": "), sf.col(f"{RECORD}.reason"))).cast("boolean")
    # Raise the error in a filter, because Spark's optimizer never removes filters.
    is_row = sf.when(verdict == STOP, stop).otherwise(verdict == ROW)
    return classify(decoded_records, policy, keep=keep).filter(is_row).drop(RECORD)


def _error(policy: RecordPolicy, *, bad_timestamps: bool) -> Column:
    error = sf.col("decoded.error")
    for schema_id, why in policy.refused_schemas.items():
        refused = sf.col("decoded.schema_id") == schema_id
        # This reason also replaces a decoding error: the value may have been decoded by another schema.
        has_reason = sf.coalesce(error.contains(why), sf.lit(False))
        error = sf.when(refused & ~has_reason, sf.lit(f"schema id {schema_id}: {why}")).otherwise(error)
    if bad_timestamps:
        message = sf.format_string(BAD_TIMESTAMP_REASON, BAD_TIMESTAMP)
        error = sf.when(sf.col(BAD_TIMESTAMP).isNotNull(), message).otherwise(error)
    at = sf.col("offset")
    for span, why in policy.isolated.items():
        here = (sf.col("topic") == span.topic) & (sf.col("partition") == span.partition)
        error = sf.when(here & (at >= span.start) & (at < span.end), sf.lit(why)).otherwise(error)
    return error


def _verdict(rows: DataFrame, policy: RecordPolicy) -> tuple[Column, Column]:
    """Return the reason why a record is not a row (null for rows and skipped records), and the verdict."""
    if policy.on_null not in VERDICTS:
        raise ConfigError(
            f"on_null: {policy.on_null!r} is not known", hint="use 'fail', 'skip', 'keep' or 'dead_letter'"
        )
    error, null_value = sf.col(f"{RECORD}.error"), sf.col(f"{RECORD}.null_value")
    tombstone = sf.lit(TOMBSTONE if policy.on_null in ("fail", "dead_letter") else None)
    reason = sf.when(error.isNotNull(), error)
    # Expectations apply neither to records without a value, nor to deletes that have only a key.
    verdict = sf.when(error.isNotNull(), VERDICTS[policy.on_error])
    keyless = _keyless(rows, policy.deletes)
    if policy.on_null == "keep":
        unknown = null_value & keyless.isNotNull()
        reason, verdict = reason.when(unknown, keyless), verdict.when(unknown, VERDICTS[policy.on_error])
    reason, verdict = reason.when(null_value, tombstone), verdict.when(null_value, VERDICTS[policy.on_null])
    for expectation in policy.expect:
        broken = ~sf.coalesce(_rule(rows, expectation), sf.lit(False))
        if policy.deletes is not None:
            broken = broken & ~sf.col(DELETED)
        why = None if expectation.on_violation == "drop" else f"expectation {expectation.name}: {expectation.rule}"
        reason = reason.when(broken, sf.lit(why))
        verdict = verdict.when(broken, VERDICTS[expectation.on_violation])
    for name, type_ in policy.takes.items():
        if column := next((each for each in rows.columns if each.lower() == name.lower()), None):
            value = sf.col(quoted((column,)))
            length = type_.removeprefix("fixed[").removesuffix("]")
            fits = value.rlike(UUID) if type_ == "uuid" else sf.octet_length(value) == int(length)
            reason = reason.when(~fits, sf.lit(f"column {column} of the table accepts only a {type_}"))
            verdict = verdict.when(~fits, VERDICTS[policy.on_error])
    if policy.rule is not None and (refusal := policy.rule(rows)) is not None:
        reason = reason.when(refusal.isNotNull(), refusal)
        verdict = verdict.when(refusal.isNotNull(), VERDICTS[policy.on_error])
    reason = reason.when(keyless.isNotNull(), keyless)
    verdict = verdict.when(keyless.isNotNull(), VERDICTS[policy.on_error]).otherwise(ROW)
    if COPY in rows.select(f"{RECORD}.record.*").columns:
        # Skip only copies that would be rows: a later search for a batch's dead letters cannot recognize copies.
        verdict = sf.when(sf.col(f"{RECORD}.record.{COPY}") & (verdict == ROW), SKIPPED).otherwise(verdict)
    return reason.otherwise(sf.lit(None)).cast("string"), verdict


def _keyless(rows: DataFrame, deletes: DeleteRule | None) -> Column:
    """Return the reason why an upsert cannot write a record with a null key column; null for all other records."""
    why, have = sf.lit(None).cast("string"), {name.lower() for name in rows.columns}
    for key in deletes.keys if deletes is not None and deletes.are_columns else ():
        if key.lower() in have:
            why = sf.coalesce(why, sf.when(sf.col(quoted((key,))).isNull(), sf.lit(key_is_null(key))))
    return why


def key_is_null(key: str) -> str:
    """Return the reason to give for a record that an upsert cannot write because this key column is null."""
    return f"{NO_KEY} {key} is null, so an upsert has no row to change"


def _rule(rows: DataFrame, expectation: RowExpectation) -> Column:
    try:
        rule = expression(rows.sparkSession, expectation.rule)
        rule_type = rows.select(rule.alias("rule")).schema["rule"].dataType.simpleString()
    except spark_errors.PySparkException as error:
        raise ConfigError(
            f"expectation '{expectation.name}' does not fit the rows: {str(error).splitlines()[0]}",
            where=f"columns: {', '.join(name for name in rows.columns if name != RECORD)}",
            hint="write the rule over these columns",
        ) from None
    if rule_type != "boolean":
        what = f"expectation '{expectation.name}' is not a condition: its value is of type {rule_type}"
        raise ConfigError(what, where=expectation.rule, hint="write a rule that is true or false, such as fare >= 0")
    return rule


def _require_metadata(decoded_records: DataFrame, keep: Sequence[str], *, deletes: bool) -> None:
    for name in keep:
        if name not in METADATA:
            raise ConfigError(f"{name!r} is not metadata of a record", hint=f"keep any of {', '.join(METADATA)}")
        if name not in decoded_records.columns:
            option = "set the option includeHeaders of the Kafka source" if name == "headers" else f"keep no {name}"
            raise ConfigError(f"The records have no column {name!r}", where="keep", hint=option)
    added = {metadata_column(name): name for name in keep}
    if deletes:
        added[DELETED] = ""
    for name in decoded_records.select("decoded.value.*").columns:
        if (why := name_taken(name, added)) is None:
            continue
        hint = "give the field another name in the program that writes the records"
        metadata = added.get(name.lower())
        if metadata and not (deletes and name.lower() in POSITION_COLUMNS):
            hint += f", or remove {metadata} from decode.metadata"
        raise SchemaUnusable(why, where="the fields of the values", hint=hint)
