"""Read the ledger in a Delta table's log without Spark.

A version of the table is a file ``_delta_log/N.json`` with an action in each line. Every few versions there is a
checkpoint, which has the actions that count at its version. Versions that a checkpoint covers are deleted after a time
(``delta.logRetentionDuration``), so only the newest entry is certain to be found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from lakefeed.config.connections import Connections
from lakefeed.errors import CheckpointMismatch, LakefeedError, Unreachable

LOG = "_delta_log"
_VERSION = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\..+)?\.(parquet|json)")


def storage_options(connections: Connections) -> dict[str, str]:
    """Return the options with which deltalake opens an S3 store."""
    s3 = connections.s3
    options = {"AWS_REGION": s3.region, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(not s3.uses_path_style).lower()}
    if s3.endpoint:
        options |= {"AWS_ENDPOINT_URL": s3.endpoint, "AWS_ALLOW_HTTP": str(s3.endpoint.startswith("http:")).lower()}
    keys = {"ACCESS_KEY_ID": s3.access_key, "SECRET_ACCESS_KEY": s3.secret_key, "SESSION_TOKEN": s3.session_token}
    return options | {f"AWS_{name}": key.get_secret_value() for name, key in keys.items() if key is not None}


def _files_of(uri: str, connections: Connections) -> Any:
    from pyarrow.fs import LocalFileSystem, S3FileSystem, SubTreeFileSystem

    if not uri.startswith("s3://"):
        return SubTreeFileSystem(uri, LocalFileSystem())
    s3 = connections.s3
    options: dict[str, Any] = {"region": s3.region, "force_virtual_addressing": not s3.uses_path_style}
    if s3.endpoint:
        scheme, _, address = s3.endpoint.partition("://")
        options |= {"endpoint_override": address, "scheme": scheme}
    keys = {"access_key": s3.access_key, "secret_key": s3.secret_key, "session_token": s3.session_token}
    options |= {name: key.get_secret_value() for name, key in keys.items() if key is not None}
    return SubTreeFileSystem(uri.removeprefix("s3://"), S3FileSystem(**options))


class TableLog:
    """The log of the table at ``uri``: a path of this machine, or ``s3://bucket/key``."""

    def __init__(self, uri: str, connections: Connections) -> None:
        self._uri = uri
        self._files = _files_of(uri, connections)

    def entries(self, domain: str) -> Iterator[str]:
        """Yield the configurations of a metadata domain, newest first, as far back as the log goes."""
        checkpoint, newest = self._newest()
        if newest is None:
            return
        found = False
        for version in range(newest, -1, -1):
            actions = self._actions(version)
            if actions is None:
                if version > checkpoint:
                    what = f"version {version} of the table's log is missing, and version {newest} is there"
                    hint = "restore _delta_log from a backup; without this file no reader can open the table"
                    raise CheckpointMismatch(what, where=self._uri, hint=hint)
                break
            for action in actions:
                stored = action.get("domainMetadata")
                if stored is not None and stored["domain"] == domain and not stored.get("removed"):
                    found = True
                    yield stored["configuration"]
        if not found and checkpoint >= 0:
            yield from self._in_checkpoint(checkpoint, domain)

    def _newest(self) -> tuple[int, int | None]:
        """Return the newest checkpoint's version, -1 without one, and the table's, None if there is no table."""
        names = self._names()
        # Only a listing shows that a version in the middle is missing.
        versions = [int(found[1]) for name in names if (found := _VERSION.fullmatch(name))]
        checkpoint = max((int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))), default=-1)
        newest = max([*versions, checkpoint])
        return checkpoint, None if newest < 0 else newest

    def _names(self) -> list[str]:
        from pyarrow.fs import FileSelector

        found = self._asking(lambda: self._files.get_file_info(FileSelector(LOG, allow_not_found=True)))
        return [info.base_name for info in found]

    def _actions(self, version: int) -> list[dict[str, Any]] | None:
        text = self._read(f"{LOG}/{version:020}.json")
        if text is None:
            return None
        try:
            return [json.loads(line) for line in text.decode().splitlines() if line.strip()]
        except ValueError:
            what = f"version {version} of the table's log is torn: a line is no JSON"
            hint = "restore the file from a backup; without this file no reader can open the table"
            raise CheckpointMismatch(what, where=f"{self._uri}/{LOG}", hint=hint) from None

    def _in_checkpoint(self, version: int, domain: str) -> Iterator[str]:
        """Yield the domain's configuration in a checkpoint; it is in one file of a checkpoint with several."""
        import pyarrow.parquet as pq

        for name in self._names():
            match = _CHECKPOINT.fullmatch(name)
            if match is None or int(match[1]) != version:
                continue
            content = self._read(f"{LOG}/{name}") or b""
            if match[2] == "json":
                stored = [json.loads(line).get("domainMetadata") for line in content.decode().splitlines()]
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

    def _size(self, path: str) -> int | None:
        [info] = self._asking(lambda: self._files.get_file_info([path]))
        return info.size if info.is_file else None

    def _read(self, path: str) -> bytes | None:
        """Return a file's content; None if it is missing."""
        if self._size(path) is None:
            return None

        def read() -> bytes:
            with self._files.open_input_file(path) as file:
                content: bytes = file.read()
                return content

        found: bytes = self._asking(read)
        return found

    def _asking(self, ask: Any) -> Any:
        try:
            return ask()
        except LakefeedError:
            raise
        except FileNotFoundError:
            raise
        except Exception as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            what = f"the table's log cannot be read: {first[:300]}"
            hint = "check that the store runs, and the keys: lakefeed check --connect"
            raise Unreachable(what, where=self._uri, hint=hint) from None
