"""Names of catalogs, tables and columns as a pipeline file may write them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

Identifier = r"[A-Za-z_][A-Za-z0-9_]*"
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def _three_parts(table: str) -> str:
    if not re.fullmatch(rf"{Identifier}(\.{Identifier}){{2,}}", table):
        raise ValueError("a table is written catalog.namespace.table, of letters, digits and underscores")
    return table


TableName = Annotated[str, AfterValidator(_three_parts)]
"""``catalog.namespace.table``"""


def _can_name_a_topic(topic: str) -> str:
    if not TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ValueError("a topic's name is up to 249 letters, digits, '.', '_' and '-'")
    return topic


TopicName = Annotated[str, AfterValidator(_can_name_a_topic)]


def catalog_of(table: str) -> str:
    """The catalog's name: the first part of the table's."""
    return table.split(".", 1)[0]
