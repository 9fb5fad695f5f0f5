"""Lets pyiceberg open tables with columns of type variant, which pyiceberg 0.12 does not know.

Metadata and manifests can be read then. Rows cannot: pyiceberg finds no field ids inside a variant, and refuses.
Remove this module when pyiceberg has the type: https://github.com/apache/iceberg-python/issues/1819
"""

from __future__ import annotations

import json
from functools import cache, wraps
from typing import Any

_SHOWN_AS = "binary"
_PARTS = ("type", "element", "value")


@cache
def let_variants_pass() -> None:
    """Make pyiceberg read the metadata of tables with a type variant as if the type were binary."""
    from pyiceberg.catalog.rest import TableResponse
    from pyiceberg.table.metadata import TableMetadataUtil

    parse_raw, parse_response = TableMetadataUtil.parse_raw, TableResponse.model_validate_json

    @wraps(parse_raw)
    def raw(data: str) -> Any:
        return parse_raw(_without_variants(data))

    @wraps(parse_response)
    def response(json_data: str, *arguments: Any, **options: Any) -> Any:
        return parse_response(_without_variants(json_data), *arguments, **options)

    TableMetadataUtil.parse_raw = staticmethod(raw)  # type: ignore[method-assign]
    TableResponse.model_validate_json = response  # type: ignore[method-assign, assignment]


def _without_variants(text: str) -> str:
    if '"variant"' not in text:
        return text
    document = json.loads(text)
    metadata = document.get("metadata", document)
    for schema in metadata.get("schemas") or ():
        _replace(schema)
    return json.dumps(document)


def _replace(node: Any) -> None:
    """Replace the type variant in a type, a field or a list of fields."""
    if isinstance(node, list):
        for each in node:
            _replace(each)
    elif isinstance(node, dict):
        for key in _PARTS:
            if node.get(key) == "variant":
                node[key] = _SHOWN_AS
            else:
                _replace(node.get(key))
        _replace(node.get("fields"))
