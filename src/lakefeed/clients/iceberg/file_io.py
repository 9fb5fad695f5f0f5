"""Reads S3 for pyiceberg with the authorities that this process trusts; pyiceberg has no setting for them."""

from __future__ import annotations

from pyarrow.fs import FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakefeed.config import trust


class TrustingFileIO(PyArrowFileIO):
    """Opens S3 and trusts the declared authorities in addition to the system's."""

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        made = super()._initialize_s3_fs(netloc)
        # What pickle uses to rebuild the file system: its class and its settings.
        rebuild, (settings,) = made.__reduce__()
        return rebuild({**settings, "tls_ca_file_path": trust.authorities_file() or ""})
