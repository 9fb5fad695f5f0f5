"""Make pyiceberg's S3 client trust this process's certificate authorities; pyiceberg has no setting for them."""

from __future__ import annotations

from pyarrow.fs import FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakefeed.config import trust


class TrustingFileIO(PyArrowFileIO):
    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        made = super()._initialize_s3_fs(netloc)
        # The file system has no getters for its settings, but pickle's protocol (``__reduce__``) returns them.
        rebuild, (settings,) = made.__reduce__()
        return rebuild({**settings, "tls_ca_file_path": trust.authorities_file() or ""})
