"""Names of catalogs, tables and columns as a pipeline file may write them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

Identifier = r"[A-Za-z_][A-Za-z0-9_]*"
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def _three_parts(table: str) -> str:
    if not re.fullmatch(rf"{Identifier}(\.{Identifier}){{2,}}", table):
        raise ValueError("a table is written catalog.namespace.table, of letters, digits and underscores")
    return table


TableName = Annotated[str, AfterValidator(_three_parts)]
"""``catalog.namespace.table``"""


TOPIC_MARK = "{topic}"


def _three_parts_of_a_template(table: str) -> str:
    _three_parts(table.replace(TOPIC_MARK, "t"))
    return table


TableTemplate = Annotated[str, AfterValidator(_three_parts_of_a_template)]
"""A table's name in which ``{topic}`` may stand for the topic's."""


def table_of(template: str, topic: str) -> str:
    """The table of a topic: its name goes in for ``{topic}``, with ``_`` for what no table's name may have."""
    return template.replace(TOPIC_MARK, re.sub(r"[^A-Za-z0-9_]", "_", topic))


def _can_name_a_topic(topic: str) -> str:
    if not TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ValueError("a topic's name is up to 249 letters, digits, '.', '_' and '-'")
    return topic


TopicName = Annotated[str, AfterValidator(_can_name_a_topic)]


_BROKER = re.compile(r"(?:[A-Za-z_]+://)?(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._%-]+):(\d{1,5})", re.ASCII)


def _brokers(servers: str) -> str:
    for each in servers.split(","):
        found = _BROKER.fullmatch(each.strip())
        if found is None or not 1 <= int(found[1]) <= 65535:
            raise ValueError(
                f"'{each.strip()}' is no broker: write host:port, with a port of 1 to 65535; several with commas "
                "between them"
            )
    return servers


Brokers = Annotated[str, AfterValidator(_brokers)]
"""``host:port`` of one or more brokers."""

Count = Annotated[int, Field(gt=0, le=2**31 - 1)]
"""How many, as far as Java's integers reach."""

Bound = Annotated[int, Field(gt=0, le=2**63 - 1)]
"""How many at most, as far as Java's long integers reach."""


def catalog_of(table: str) -> str:
    """The catalog's name: the first part of the table's."""
    return table.split(".", 1)[0]
