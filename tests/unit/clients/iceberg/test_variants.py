"""With lakefeed's change, pyiceberg opens tables with variants at any depth, and reads other metadata as before."""

import json
from typing import Any

from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.types import BinaryType, StringType

from lakefeed.clients.iceberg.reader import let_variants_pass

FIELDS = [
    {"id": 1, "name": "variant", "type": "string", "required": False, "doc": "variant"},
    {"id": 2, "name": "v", "type": "variant", "required": False},
    {
        "id": 3,
        "name": "l",
        "type": {"type": "list", "element-id": 5, "element": "variant", "element-required": False},
        "required": False,
    },
    {
        "id": 4,
        "name": "m",
        "type": {
            "type": "map",
            "key-id": 6,
            "key": "string",
            "value-id": 7,
            "value": {"type": "struct", "fields": [{"id": 8, "name": "v", "type": "variant", "required": False}]},
            "value-required": False,
        },
        "required": False,
    },
]


def metadata(fields: list[dict[str, Any]]) -> str:
    return json.dumps(
        {
            "format-version": 3,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": "s3://lake/t",
            "last-sequence-number": 0,
            "last-updated-ms": 1,
            "last-column-id": 8,
            "current-schema-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {"type": "variant"},
            "next-row-id": 0,
        }
    )


def test_a_variant_at_any_depth_is_shown_as_binary() -> None:
    let_variants_pass()
    table = TableMetadataUtil.parse_raw(metadata(FIELDS))
    schema = table.schema()
    assert schema.find_type("variant") == StringType()
    assert [schema.find_type(path) for path in ("v", "l.element", "m.value.v")] == [BinaryType()] * 3
    assert table.properties == {"type": "variant"}
    assert TableMetadataUtil.parse_raw(metadata(FIELDS[:1])).schema().find_field(1).doc == "variant"
