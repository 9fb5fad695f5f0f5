"""How an Iceberg catalog is reached: which kinds there are, what each needs, and what of it is secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from lakefeed.config.base import Complaint, Complaints, Model, complain
from lakefeed.config.secrets import Text, hidden, shown
from lakefeed.config.urls import refuse_credentials

_SQLITE = "jdbc:sqlite:"

Kind = Literal["jdbc", "rest", "hive", "glue"]

# What each kind's uri begins with; Glue has none, the region says where it is.
_URIS: Mapping[str, tuple[str, ...]] = {
    "jdbc": ("jdbc:",),
    "rest": ("http://", "https://"),
    "hive": ("thrift://",),
    "glue": (),
}

# Which settings belong to one kind alone.
_OF_KIND: Mapping[str, tuple[str, ...]] = {
    "jdbc": ("username", "password"),
    "rest": ("credential", "token", "scope", "oauth2_server_uri", "vended_credentials"),
}

NO_HADOOP = (
    "the Hadoop catalog is not offered: on S3 two commits at once can both succeed, and one of them is lost "
    "(apache/iceberg#970)"
)


class Catalog(Model):
    """An Iceberg catalog. The Hadoop catalog is not offered: on S3 it loses commits (apache/iceberg#970)."""

    type: Kind = Field("jdbc", description="jdbc (SQLite, PostgreSQL), rest, hive (a Hive metastore) or glue.")
    uri: str = Field(
        "",
        description="jdbc:sqlite:/path/catalog.db, jdbc:postgresql://host/db, the REST URL, thrift://host:9083. "
        "Glue has none.",
    )
    warehouse: str | None = Field(
        None, description="Where tables live: s3://bucket/path. For rest, the name that the server gives it."
    )
    username: str | None = Field(None, description="Database user, for jdbc.")
    password: SecretStr | None = Field(None, description="Database password, for jdbc.")
    credential: SecretStr | None = Field(
        None,
        description="OAuth2 client credential 'id:secret', for rest; traded for tokens, and again before they expire.",
    )
    token: SecretStr | None = Field(None, description="Bearer token, for rest.")
    scope: str | None = Field(None, description="OAuth2 scope, for rest. Default: catalog.")
    oauth2_server_uri: str | None = Field(
        None, description="Where the credential is traded, for rest. Default: v1/oauth/tokens below the uri."
    )
    vended_credentials: bool = Field(
        False, description="For rest: ask the catalog for the store's keys, table by table."
    )
    properties: dict[str, Text] = Field(
        default_factory=dict,
        description="Further Iceberg catalog properties, passed on as they are. Each that comes from ${…}, or whose "
        "name says so, is kept as a secret.",
    )

    @field_validator("type", mode="before")
    @classmethod
    def _not_hadoop(cls, kind: Any) -> Any:
        if isinstance(kind, str) and kind.lower() == "hadoop":
            hint = "jdbc needs no server: type: jdbc, uri: jdbc:sqlite:/path/catalog.db"
            raise Complaints([Complaint(what=NO_HADOOP, hint=hint)])
        return kind

    @field_validator("properties")
    @classmethod
    def _one_place_for_each_setting(cls, properties: dict[str, str]) -> dict[str, str]:
        complaints = [
            Complaint(
                key=key,
                what=NO_HADOOP if "hadoop" in properties[key].lower() else f"'{key}' says what 'type' says",
                hint=hint,
            )
            for key, hint in {
                "type": "set catalogs.<name>.type",
                "catalog-impl": "set catalogs.<name>.type: jdbc, rest, hive or glue",
            }.items()
            if key in properties
        ]
        complain(complaints)
        return properties

    @model_validator(mode="after")
    def _fits_type(self) -> Catalog:
        requested = _URIS[self.type]
        if requested and not self.uri.startswith(requested):
            raise ValueError(f"the uri of a {self.type} catalog starts with {' or '.join(requested)}")
        if not requested and self.uri:
            raise ValueError("a glue catalog has no uri: s3.region says where it is")
        if self.type != "rest" and self.warehouse is None:
            raise ValueError(f"a {self.type} catalog requires a warehouse: s3://bucket/path")
        for kind, names in _OF_KIND.items():
            given = [name for name in names if getattr(self, name)]
            if kind != self.type and given:
                raise ValueError(f"{given[0]} is for a {kind} catalog, not for {self.type}")
        if self.token is not None and self.credential is not None:
            raise ValueError("token and credential are two ways to log in: give one")
        return self

    @field_validator("uri", "oauth2_server_uri")
    @classmethod
    def _uri_without_credentials(cls, uri: str | None) -> str | None:
        if uri is not None:
            refuse_credentials(uri, instead="username and password, token or credential")
        return uri

    @field_validator("warehouse")
    @classmethod
    def _warehouse_is_s3(cls, warehouse: str | None) -> str | None:
        if warehouse is None:
            return None
        refuse_credentials(warehouse, instead="the block s3")
        if warehouse.startswith("s3a://"):
            raise ValueError("write the warehouse as s3://…: Iceberg and the other engines that read it want that")
        return warehouse.rstrip("/")

    @property
    def sqlite_file(self) -> Path | None:
        """The database file of a catalog on SQLite; None for other catalogs."""
        if not self.uri.startswith(_SQLITE):
            return None
        return Path(self.uri.removeprefix(_SQLITE).removeprefix("file:").partition("?")[0])

    def settings(self) -> dict[str, str]:
        """Iceberg's properties for this catalog, without any secret."""
        known = {
            "type": self.type,
            "uri": self.uri or None,
            "warehouse": self.warehouse,
            "jdbc.schema-version": "V1" if self.type == "jdbc" else None,
            # A writer waits for another one's commit on a busy disk; the driver's default is to fail after 3 seconds.
            "jdbc.busy_timeout": "60000" if self.sqlite_file is not None else None,
            "jdbc.user": self.username,
            # A new token for the credential, each time: not every login server exchanges tokens (RFC 8693).
            "token-exchange-enabled": None if self.credential is None else "false",
            # Iceberg's own client waits without end for a server that accepts and says nothing.
            "rest.client.connection-timeout-ms": "10000" if self.type == "rest" else None,
            "rest.client.socket-timeout-ms": "120000" if self.type == "rest" else None,
            "scope": self.scope,
            "oauth2-server-uri": self.oauth2_server_uri,
            "header.X-Iceberg-Access-Delegation": "vended-credentials" if self.vended_credentials else None,
        }
        named = {key: value for key, value in known.items() if value is not None}
        return {**named, **shown(self.properties)}

    def secrets(self) -> dict[str, SecretStr]:
        """Iceberg's properties for this catalog that must stay secret."""
        known = {"jdbc.password": self.password, "credential": self.credential, "token": self.token}
        named = {key: secret for key, secret in known.items() if secret is not None}
        return {**named, **hidden(self.properties)}
