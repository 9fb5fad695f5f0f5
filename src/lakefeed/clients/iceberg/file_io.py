"""pyiceberg's access to S3 with this process's certificate authorities, or with a client certificate.

Python's TLS supports client certificates, pyarrow's S3 client does not.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from pyarrow import PythonFile
from pyarrow.fs import FileInfo, FileSystem, FileSystemHandler, FileType, PyFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakefeed.clients.http import MOST_BYTES, ask
from lakefeed.clients.s3 import configured_keys, object_url, prefix_url, read_listing, signed_headers
from lakefeed.config import trust
from lakefeed.config.connections import S3

_SECONDS = 60.0
"""The timeout of a request; each request reads at most a megabyte."""


class CertifiedFileIO(PyArrowFileIO):
    """Reads tables in a store that requires a client certificate. It is read-only, because only Spark writes tables."""

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        found = {
            "endpoint": self.properties.get("s3.endpoint"),
            "region": self.properties.get("s3.region"),
            "access_key": self.properties.get("s3.access-key-id"),
            "secret_key": self.properties.get("s3.secret-access-key"),
            "session_token": self.properties.get("s3.session-token"),
            "path_style": self.properties.get("s3.force-virtual-addressing") != "true",
        }
        s3 = S3.model_validate({key: value for key, value in found.items() if value is not None})
        return PyFileSystem(_Objects(s3))


class _Objects(FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types.
    """A read-only file system of a store's objects; paths are ``bucket/key``."""

    def __init__(self, s3: S3) -> None:
        self._s3 = s3

    def get_type_name(self) -> str:
        return "lakefeed-s3"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Iterable[str]) -> list[FileInfo]:
        return [self._info(path) for path in paths]

    def open_input_file(self, path: str) -> PythonFile:
        info = self._info(path)
        if info.type != FileType.File:
            raise FileNotFoundError(path)
        return PythonFile(io.BufferedReader(_Object(self, path, info.size), MOST_BYTES), mode="r")

    open_input_stream = open_input_file

    def read(self, path: str, start: int, count: int) -> bytes:
        bucket, _, key = path.partition("/")
        part = {"range": f"bytes={start}-{start + count - 1}"}
        return self._get(object_url(bucket, key, s3=self._s3), path, headers=part)

    def _info(self, path: str) -> FileInfo:
        bucket, _, key = path.partition("/")
        listed = self._get(f"{prefix_url(bucket, key, s3=self._s3)}&max-keys=1", path)
        # If the object exists, its key is the first in a listing of the keys that begin with it.
        size = read_listing(listed).sizes.get(key)
        return FileInfo(path, FileType.NotFound) if size is None else FileInfo(path, FileType.File, size=size)

    def _get(self, url: str, path: str, headers: dict[str, str] | None = None) -> bytes:
        keys = configured_keys(self._s3)
        signed = signed_headers(url, keys=keys, region=self._s3.region, headers=headers)
        answer = ask(url, server="the S3 store", headers=signed, timeout=_SECONDS)
        if answer.status in (401, 403):
            raise PermissionError(13, f"the S3 store refuses access (HTTP status {answer.status})", path)
        if answer.status == 404:
            raise FileNotFoundError(2, "there is no such object", path)
        if answer.status not in (200, 206):
            raise OSError(f"the S3 store answers with HTTP status {answer.status}: {path}")
        return answer.body

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError("this file system is read-only")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refuse
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refuse


class _Object(io.RawIOBase):
    """One object, readable from any position."""

    def __init__(self, objects: _Objects, path: str, size: int) -> None:
        super().__init__()
        self._objects, self._path, self._size, self._at = objects, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), MOST_BYTES, self._size - self._at)
        if count <= 0:
            return 0
        body = self._objects.read(self._path, self._at, count)
        buffer[: len(body)] = body
        self._at += len(body)
        return len(body)


class TrustingFileIO(PyArrowFileIO):
    """Trusts this process's certificate authorities; pyiceberg has no setting for them."""

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        made = super()._initialize_s3_fs(netloc)
        # pyarrow's file system has no getters for its settings, but ``__reduce__``, which pickle uses, returns them.
        rebuild, (settings,) = made.__reduce__()
        return rebuild({**settings, "tls_ca_file_path": trust.authorities_file() or ""})
