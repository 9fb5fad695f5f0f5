"""The files of a checkpoint location without Spark, for commands that only look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakefeed.config.connections import S3
from lakefeed.errors import AccessDenied, MissingExtra, Unreachable


class StoredCheckpoint:
    """Reads the files of one location on the store: see ``StoredCheckpoint``.

    Args:
        location: s3a://bucket/path
        s3: the store.

    Raises:
        MissingExtra: pyarrow is not installed.
    """

    def __init__(self, location: str, *, s3: S3) -> None:
        try:
            from pyarrow import fs
        except ImportError:
            raise MissingExtra.of("pyarrow", "read", "reading a checkpoint without Spark") from None
        self._path = location.partition("://")[2]
        self._location = location
        settings: dict[str, Any] = {
            "region": s3.region,
            "access_key": s3.access_key.get_secret_value() if s3.access_key else None,
            "secret_key": s3.secret_key.get_secret_value() if s3.secret_key else None,
            "session_token": s3.session_token.get_secret_value() if s3.session_token else None,
            "endpoint_override": s3.endpoint,
            "force_virtual_addressing": not s3.uses_path_style,
        }
        self._files: Any = fs.S3FileSystem(**{key: value for key, value in settings.items() if value is not None})
        self._names: list[str] | None = None

    def names(self) -> Sequence[str]:
        """All names, relative to the location.

        Raises:
            AccessDenied: these credentials may not list it.
            Unreachable: the store does not answer.
        """
        from pyarrow import fs

        if self._names is None:
            selector: Any = fs.FileSelector(self._path, recursive=True, allow_not_found=True)
            try:
                found = self._files.get_file_info(selector)
            except OSError as error:
                raise self._error(error) from None
            self._names = [each.path[len(self._path) + 1 :] for each in found if each.is_file]
        return self._names

    def read(self, name: str) -> str:
        """A file's text."""
        try:
            with self._files.open_input_stream(f"{self._path}/{name}") as stream:
                return str(stream.read().decode("utf-8", errors="replace"))
        except OSError as error:
            raise self._error(error) from None

    def _error(self, error: OSError) -> AccessDenied | Unreachable:
        if "ACCESS_DENIED" in str(error) or "403" in str(error):
            return AccessDenied("the S3 store refuses to show the checkpoint", where=self._location)
        return Unreachable(
            f"the checkpoint cannot be read: {str(error).splitlines()[0][:200]}",
            where=self._location,
            hint="lakefeed check --connect says whether the store answers",
        )
