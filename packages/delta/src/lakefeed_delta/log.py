"""Read the ledger in a Delta table's log without Spark.

A version of the table is a file ``_delta_log/N.json`` with an action in each line. Every few versions there is a
checkpoint, which has the actions that count at its version. Versions that a checkpoint covers are deleted after a time
(``delta.logRetentionDuration``), so only the newest entry is certain to be found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from lakefeed.config.connections import Connections
from lakefeed.errors import CheckpointMismatch
from lakefeed.ledger.checkpoint import StoredCheckpoint

LOG = "_delta_log"
_VERSION = re.compile(r"(\d{20})\.json")
_CHECKSUM = re.compile(r"(\d{20})\.crc")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\..+)?\.(parquet|json)")


def storage_options(connections: Connections) -> dict[str, str]:
    """Return the options with which deltalake opens an S3 store."""
    s3 = connections.s3
    options = {"AWS_REGION": s3.region, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(not s3.uses_path_style).lower()}
    if s3.endpoint:
        options |= {"AWS_ENDPOINT_URL": s3.endpoint, "AWS_ALLOW_HTTP": str(s3.endpoint.startswith("http:")).lower()}
    keys = {"ACCESS_KEY_ID": s3.access_key, "SECRET_ACCESS_KEY": s3.secret_key, "SESSION_TOKEN": s3.session_token}
    return options | {f"AWS_{name}": key.get_secret_value() for name, key in keys.items() if key is not None}


class TableLog:
    """The log of the table at ``uri``: a path of this machine, or ``s3://bucket/key``."""

    def __init__(self, uri: str, connections: Connections) -> None:
        self._uri = uri
        self._open = partial(StoredCheckpoint, f"{uri}/{LOG}", s3=connections.s3, content="table's log")
        self._files = self._open()

    def entries(self, domain: str) -> Iterator[str]:
        """Yield the configurations of a metadata domain, newest first, as far back as the log goes."""
        names, checkpoint, newest = self.versions()
        found = False
        for version in range(newest, -1, -1):
            if (name := f"{version:020}.json") not in names:
                break
            for action in self._actions(version, name):
                stored = action.get("domainMetadata")
                if stored is not None and stored["domain"] == domain and not stored.get("removed"):
                    found = True
                    yield stored["configuration"]
        if not found and checkpoint >= 0:
            yield from self._in_checkpoint(checkpoint, domain, names)

    def versions(self) -> tuple[set[str], int, int]:
        """Return the names of the log's files, and the versions of the newest checkpoint and of the table.

        A version is -1 if it does not exist.

        Raises:
            CheckpointMismatch: a version that readers need is missing.
        """
        # The first listing may be older than a version that is written meanwhile, and newer than its checksum.
        for is_last in (False, True):
            self._files = self._open()
            names = set(self._files.names())
            checkpoint = _newest(_CHECKPOINT, names)
            newest = max(checkpoint, _newest(_VERSION, names))
            # Delta writes a checksum after each version, so it also shows that the newest version is missing.
            known = max(newest, _newest(_CHECKSUM, names))
            missing = [each for each in range(known, checkpoint, -1) if f"{each:020}.json" not in names]
            if not missing:
                break
            if is_last:
                seen = f"version {newest} is" if missing[0] < newest else "its checksum is"
                what = f"version {missing[0]} of the table's log is missing, and {seen} there"
                hint = "restore the file from a backup; without it no reader sees the whole table"
                raise CheckpointMismatch(what, where=f"{self._uri}/{LOG}", hint=hint)
        return names, checkpoint, newest

    def require_whole(self) -> None:
        """Raise a CheckpointMismatch if a version after the newest checkpoint is missing or torn."""
        _, checkpoint, newest = self.versions()
        for version in range(checkpoint + 1, newest + 1):
            self._actions(version, f"{version:020}.json")

    def _actions(self, version: int, name: str) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in _lines(self._files.read_bytes(name))]
        except ValueError:
            what = f"version {version} of the table's log is torn: a line is no JSON"
            hint = "restore the file from a backup; without this file no reader can open the table"
            raise CheckpointMismatch(what, where=f"{self._uri}/{LOG}", hint=hint) from None

    def _in_checkpoint(self, version: int, domain: str, names: Iterable[str]) -> Iterator[str]:
        """Yield the domain's configuration from a checkpoint. Only one of the checkpoint's files has it."""
        import pyarrow.parquet as pq

        for name in names:
            match = _CHECKPOINT.fullmatch(name)
            if match is None or int(match[1]) != version:
                continue
            content = self._files.read_bytes(name)
            if match[2] == "json":
                stored = [json.loads(line).get("domainMetadata") for line in _lines(content)]
            else:
                import pyarrow as pa

                file = pq.ParquetFile(pa.BufferReader(content))
                if "domainMetadata" not in file.schema_arrow.names:
                    continue
                stored = file.read(columns=["domainMetadata"]).column(0).to_pylist()
            for each in stored:
                if each is not None and each["domain"] == domain and not each.get("removed"):
                    yield each["configuration"]
                    return


def _newest(pattern: re.Pattern[str], names: Iterable[str]) -> int:
    return max((int(found[1]) for name in names if (found := pattern.fullmatch(name))), default=-1)


def _lines(content: bytes) -> list[str]:
    # Statistics have texts of rows, so a line may contain characters at which Python's splitlines splits, too.
    return [line for line in content.decode().split("\n") if line]
