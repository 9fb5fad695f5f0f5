"""Names of what a feed reads and writes, by OpenLineage's naming specification: https://openlineage.io/docs/spec/naming."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit


class DatasetName(NamedTuple):
    """A dataset's name: that of the system it is in, and its own there."""

    namespace: str
    name: str


def topic_name(servers: str, topic: str) -> DatasetName:
    """Name a topic; the first broker stands for the cluster, as in OpenLineage's own integrations."""
    first = servers.split(",")[0].strip().rpartition("://")[2]
    return DatasetName(f"kafka://{first}", topic)


def path_name(path: str) -> DatasetName:
    """Name a path in a store or a file system."""
    parts = urlsplit(path)
    scheme = "s3" if parts.scheme == "s3a" else parts.scheme
    if not parts.netloc:
        return DatasetName(scheme or "file", parts.path or "/")
    return DatasetName(f"{scheme}://{parts.netloc}", parts.path.strip("/"))
