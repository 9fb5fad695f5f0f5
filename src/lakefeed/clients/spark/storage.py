"""Return Spark settings for the storage of tables and checkpoints: the S3 store, this machine's disk, the catalogs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from lakefeed.config import trust
from lakefeed.errors import AccessDenied, FileDenied

if TYPE_CHECKING:
    from lakefeed.config.connections import Catalog, Connections

# lakefeed's versions of S3A and of Iceberg's S3FileIO, which make fewer requests: docs/s3-requests.md.
S3A = "io.lakefeed.s3.DataFileSystem"
S3_FILE_IO = "io.lakefeed.sink.TableFileIO"
# For tables on this machine's disk: Hadoop's FileIO, with a file system that flushes files before they are visible.
LOCAL_FILE_IO = "org.apache.iceberg.hadoop.HadoopFileIO"
LOCAL_FILES = {
    "spark.hadoop.fs.file.impl": "io.lakefeed.files.DurableFileSystem",
    # For checkpoints on disk: no checksum files, because a start can restore a damaged checkpoint from the table.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
# The keys in the settings, else AWS's default chain; S3A's own chain supports neither profiles nor web identities.
CREDENTIALS = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
)
# Iceberg's SparkCatalog, whose commits also check the feed's position: docs/exactly-once.md.
FEED_CATALOG = "io.lakefeed.commit.FeedCatalog"


def storage_settings(connections: Connections) -> dict[str, str]:
    s3 = connections.s3
    options = {
        "fs.s3a.endpoint.region": s3.region,
        "fs.s3a.path.style.access": str(s3.uses_path_style).lower(),
        # Let a wrong endpoint fail within seconds; with S3A's defaults, that takes a quarter of an hour.
        "fs.s3a.connection.establish.timeout": "5s",
        "fs.s3a.attempts.maximum": "3",
        "fs.s3a.retry.limit": "4",
        "fs.s3a.retry.interval": "300ms",
        # A file up to this size takes one PUT, instead of the four requests of a multipart upload.
        "fs.s3a.multipart.size": "128M",
        "fs.s3a.multipart.threshold": "128M",
        "fs.s3a.aws.credentials.provider": ",".join(CREDENTIALS),
    }
    if s3.endpoint:
        options["fs.s3a.endpoint"] = s3.endpoint
        options["fs.s3a.connection.ssl.enabled"] = str(s3.endpoint.startswith("https://")).lower()
    return {f"spark.hadoop.{key}": value for key, value in options.items()} | {
        "spark.hadoop.fs.s3a.impl": S3A,
        "spark.hadoop.fs.s3.impl": S3A,
    }


def catalog_settings(connections: Connections) -> dict[str, str]:
    s3 = connections.s3
    shared = {
        "io-impl": S3_FILE_IO,
        # Do not cache tables: a feed reads its position from the table, and a cached table may have an old position.
        "cache-enabled": "false",
        "s3.client-factory-impl": "io.lakefeed.sink.SharedHttpClients",
        # Use the HTTP client that Iceberg's other AWS clients use: Apache's, the default, needs a newer SDK than
        # Hadoop's.
        "http-client.type": "urlconnection",
        "client.region": s3.region,
        "s3.endpoint": s3.endpoint,
        "s3.path-style-access": str(s3.uses_path_style).lower(),
        # With this threshold of multipart uploads, a data file of the sink's default size takes one PUT.
        "s3.multipart.part-size-bytes": str(128 * 1024 * 1024),
    }
    found: dict[str, str] = {}
    for name, catalog in connections.catalogs.items():
        stored = shared if catalog.folder is None else {"io-impl": LOCAL_FILE_IO, "cache-enabled": "false"}
        prefix, properties = f"spark.sql.catalog.{name}", {**stored, **_database_tls(catalog), **catalog.settings()}
        found[prefix] = FEED_CATALOG
        found |= {f"{prefix}.{key}": value for key, value in properties.items() if value is not None}
    return found


def make_folders(connections: Connections) -> None:
    """Create the folders of warehouses on this machine; SQLite would not create the folder of its database file."""
    for name, catalog in connections.catalogs.items():
        if (folder := catalog.folder) is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                what = f"the warehouse's folder cannot be created: {error.strerror}"
                raise AccessDenied(what, where=str(folder), hint=f"correct catalogs.{name}.warehouse") from None


def require_own_folder(settings: Mapping[str, str]) -> None:
    """Create the folder for Spark's temporary files; raise a FileDenied if no configured folder is writable."""
    folders = (os.environ.get("SPARK_LOCAL_DIRS") or settings.get("spark.local.dir", "")).split(",")
    refused: OSError | None = None
    for folder in filter(None, folders):
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            return
        except OSError as error:
            refused = error
    if refused is not None:
        what = f"the folder for Spark's temporary files cannot be written: {refused.strerror}"
        raise FileDenied(
            what, where=folder, hint="free disk space in this folder, or correct spark.local.dir, SPARK_LOCAL_DIRS"
        )


def _database_tls(catalog: Catalog) -> dict[str, str]:
    if not catalog.uri.startswith("jdbc:postgresql:"):
        return {}
    given = dict(parse_qsl(urlsplit(catalog.uri.removeprefix("jdbc:")).query, keep_blank_values=True))
    return {f"jdbc.{name}": value for name, value in trust.pgjdbc_properties(given).items()}
