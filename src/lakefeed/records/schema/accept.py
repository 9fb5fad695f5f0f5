"""Which writers' schemas a feed takes: the rule of ``schema.accept``, before anything is joined.

The decoder has the same rule for a schema that it meets (``io.lakefeed.decode.Acceptance``); a test compares them.
"""

from __future__ import annotations

from lakefeed.config.failures import Accept
from lakefeed.records.schema.avro import NO_DEFAULT, AvroSchema, Field, Record, Ref, nullable, short_name
from lakefeed.records.schema.parse import parse


def refusal(reader: str, writer: str, accept: Accept, *, by_name: bool = True) -> str | None:
    """Why the records of a writer's schema must not become rows; None if they may.

    Args:
        reader: Avro record schema (JSON) of the table's rows.
        writer: Avro record schema (JSON).
        accept: the rule.
        by_name: whether the name of the record counts. JSON Schema has titles, which are not names.

    Raises:
        ConfigError: one of the two is no Avro record schema.
    """
    if accept == "any":
        return None
    ours, theirs = _record(parse(reader)), _record(parse(writer))
    if by_name and not _same_record(ours, theirs):
        return f"the record is a {theirs.name}, but the table's rows are {ours.name}"
    if not any(_same_field(one, other) for one in ours.fields for other in theirs.fields):
        return f"the record shares no field with the table's rows, which are {ours.name}"
    if accept == "resolvable":
        missing = next((each for each in ours.fields if _required(each) and not _is_in(theirs, each)), None)
        if missing is not None:
            return f"the record has no field {missing.name}, which is required and has no default"
    return None


def _record(schema: AvroSchema) -> Record:
    assert isinstance(schema.root, Ref)  # parse lets nothing else through.
    record = schema.named(schema.root)
    assert isinstance(record, Record)
    return record


def _same_record(ours: Record, theirs: Record) -> bool:
    """By name or alias on either side. Namespaces do not count, as in Avro's resolution."""
    known = {short_name(each) for each in (ours.name, *ours.aliases)}
    return short_name(theirs.name) in known or short_name(ours.name) in {short_name(each) for each in theirs.aliases}


def _same_field(ours: Field, theirs: Field) -> bool:
    return theirs.name in (ours.name, *ours.aliases) or ours.name in theirs.aliases


def _required(field: Field) -> bool:
    return field.default is NO_DEFAULT and not nullable(field.type)


def _is_in(record: Record, field: Field) -> bool:
    return any(_same_field(field, each) for each in record.fields)
