"""Each change in a chain of random schemas is applied to the table's columns, or refused with a reason."""

import json
from contextlib import suppress

from pyspark.sql.types import StructType

from lakefeed.errors import ConfigError, LakefeedError, SchemaIncompatible
from lakefeed.records.schema.changes import renames
from lakefeed.records.schema.ddl import statements
from lakefeed.records.schema.fit import columns_of
from lakefeed.records.schema.merge import merge_schemas
from lakefeed.records.schema.reader import Evolution
from tests.support.avro_pairs import Draw

CHAINS = 100


def run_of(seed: int) -> dict[str, int]:
    """Merge a random chain of schema versions as a feed does; count the versions by outcome."""
    schemas = Draw(seed, wild=True)
    version = schemas.record()
    reader = json.dumps(version)
    counts = {"merged": 0, "refused": 0, "first": 0}
    try:
        have = columns_of(reader)
        statements("c.n.t", have=StructType(), want=have)
    except LakefeedError:
        counts["first"] += 1
        return counts
    evolution = Evolution("evolve", reader, known_ids={0})
    for schema_id in range(1, 5):
        version = schemas.next(version)
        text = json.dumps(version)
        try:
            merge = evolution.merge_writer_schema(schema_id, text)
        except ConfigError:
            counts["refused"] += 1
            continue
        if schema_id in evolution.incompatible:
            assert evolution.incompatible[schema_id]
            counts["refused"] += 1
            continue
        counts["merged"] += 1
        after = evolution.reader_schema
        want = columns_of(after)
        with suppress(SchemaIncompatible):
            for each in statements("c.n.t", have=have, want=want, changes=renames(after)):
                assert each.startswith("ALTER TABLE `c`.`n`.`t` ")
        again = merge_schemas(after, text)
        assert again.changes == (), again.changes
        for change in merge.changes if merge else ():
            assert str(change)
        have = want
    return counts


def test_each_random_change_is_applied_or_refused_with_a_reason() -> None:
    counts = {"merged": 0, "refused": 0, "first": 0}
    for seed in range(CHAINS):
        try:
            for key, count in run_of(seed).items():
                counts[key] += count
        except Exception as failed:
            raise AssertionError(f"seed {seed}: {type(failed).__name__}: {failed}") from failed
    assert counts["merged"] > CHAINS
    assert counts["refused"] > CHAINS / 3
