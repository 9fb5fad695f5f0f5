"""The addresses and keys of the local stack, as values and as environment variables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

REGION = "us-east-1"
"""S3 clients must sign requests for it; the local stores accept no other."""

BUCKET = "lake"


@dataclass(frozen=True, kw_only=True)
class Endpoints:
    """All that a client needs to use the local stack.

    Attributes:
        schema_registry_url: the Confluent-compatible API, ending in ``/apis/ccompat/v7``.
        s3_endpoint: the store's URL; path-style requests.
        catalog_uri: ``jdbc:sqlite:<file>``, as Spark takes it.
    """

    bootstrap_servers: str
    schema_registry_url: str
    s3_endpoint: str
    region: str
    access_key: str
    secret_key: SecretStr
    bucket: str
    catalog_uri: str
    warehouse: str

    @property
    def catalog_file(self) -> Path:
        """Return the catalog's SQLite file."""
        return Path(self.catalog_uri.removeprefix("jdbc:sqlite:"))

    def as_environment(self) -> dict[str, str]:
        """Return the variables that lakefeed reads, with the secret in clear: for a child process, not for logs."""
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
