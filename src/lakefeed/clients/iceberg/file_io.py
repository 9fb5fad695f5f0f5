"""pyiceberg's access to S3 with the authorities that this process trusts, for which pyiceberg has no setting."""

from __future__ import annotations

from pyarrow.fs import FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakefeed.config import trust


class TrustingFileIO(PyArrowFileIO):
    """Opens S3 with the declared authorities beside the system's."""

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        made = super()._initialize_s3_fs(netloc)
        # The file system as it pickles itself: its class and its settings.
        rebuild, (settings,) = made.__reduce__()
        return rebuild({**settings, "tls_ca_file_path": trust.authorities_file() or ""})
