"""A feed of JSON records with the field id only."""

import json
from typing import Any

from tests.support.feed import Feed

JSON_ROWS = {"json": {"schema_ddl": "id BIGINT"}, "metadata": ["topic", "partition", "offset"]}


def records(count: int, *, first: int = 0) -> list[bytes]:
    return [json.dumps({"id": number}).encode() for number in range(first, first + count)]


def source(feed: Feed, **settings: Any) -> dict[str, Any]:
    return {"kafka": {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics": [feed.topic], **settings}}
