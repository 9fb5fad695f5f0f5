"""Names of catalogs, tables and columns as a pipeline file may write them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

Identifier = r"[A-Za-z_][A-Za-z0-9_]*"
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

# Where keys are free (Kafka options, catalog properties), these hold secrets.
SECRET_KEY = re.compile(
    r"(?i)password|passwd|secret|jaas|credentials?$|authorization$|keystore\.key$|(^|[._-])token$|sas-token"
    r"|access[._-]?key"
)


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


def catalog_of(table: str) -> str:
    """The catalog's name: the first part of the table's."""
    return table.split(".", 1)[0]
