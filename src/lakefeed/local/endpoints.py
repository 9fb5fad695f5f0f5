"""Where the local stack is reached, and the same as environment variables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from lakefeed.config.catalog import Catalog

REGION = "us-east-1"
"""What S3 clients must say; the local stores accept no other."""

BUCKET = "lake"
CATALOG_NAME = "lake"
"""Tables in a JDBC catalog are scoped by its name: every reader must use the same one."""


@dataclass(frozen=True, kw_only=True)
class Endpoints:
    """All that a client needs to use the local stack.

    Attributes:
        bootstrap_servers: Kafka, ``host:port``.
        schema_registry_url: the Confluent-compatible API, ending in ``/apis/ccompat/v7``.
        s3_endpoint: the store's URL; path-style requests.
        region: what to sign S3 requests for.
        access_key: S3 access key id.
        secret_key: S3 secret key.
        bucket: the bucket that ``up`` has made.
        catalog_name: the name under which the Iceberg catalog's tables are kept.
        catalog_uri: ``jdbc:sqlite:<file>``, as Spark takes it.
        warehouse: where the catalog puts tables, ``s3://bucket/path``.
    """

    bootstrap_servers: str
    schema_registry_url: str
    s3_endpoint: str
    region: str
    access_key: str
    secret_key: SecretStr
    bucket: str
    catalog_name: str
    catalog_uri: str
    warehouse: str

    @property
    def catalog_file(self) -> Path:
        """The catalog's SQLite file."""
        file = Catalog(type="jdbc", uri=self.catalog_uri, warehouse=self.warehouse).sqlite_file
        assert file is not None  # The local stack's catalog is always SQLite.
        return file

    def as_environment(self) -> dict[str, str]:
        """What lakefeed reads, with the secret in clear: for a child's environment, not for logs."""
        return {
            "KAFKA_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "SCHEMA_REGISTRY_URL": self.schema_registry_url,
            "AWS_ENDPOINT_URL_S3": self.s3_endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key.get_secret_value(),
            "AWS_REGION": self.region,
            "LAKEFEED_CATALOG_URI": self.catalog_uri,
            "LAKEFEED_WAREHOUSE": self.warehouse,
        }
