"""Connections of a pipeline: the S3 store, the Schema Registry and the catalogs.

A connection that the pipeline file does not declare comes from environment variables; other clients use the same names.
Secrets have no default and print as ``**********``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import AfterValidator, Field, SecretStr, SerializeAsAny, ValidationInfo, field_validator, model_validator

from lakefeed.config.addresses import is_local, local_folder, local_path
from lakefeed.config.base import ConfigProblem, ConfigProblems, Model, checked, raise_problems, validated
from lakefeed.config.secrets import Text, hidden, plain, shown, texts_of
from lakefeed.errors import ConfigError
from lakefeed.messages.redaction import remember

# Patterns of credentials in URLs.
_PARAMETER = re.compile(r"[?&;(,#]\s*([^=&;?(),#\s]+)\s*=\s*(?=[^&;)\s])")
_SECRET = re.compile(
    r"(?i)passw|passphrase|^pass$|pwd|secret|token|credential|(api|access|private|account|shared)[._-]?key"
    r"|^sig$|signature|^auth$|authorization|^user(name)?$|jaas"
)


def credentials_in(url: str) -> str | None:
    """Describe the credentials in a URL without their values; return None for a URL without credentials."""
    if re.search(r"//[^/?#]*@", url):
        return "a user or a password before '@'"
    names = (unquote(found[1]) for found in _PARAMETER.finditer(url))
    return next((f"the parameter '{name[:40]}'" for name in names if _SECRET.search(name)), None)


def refuse_credentials(url: str, *, instead: str) -> None:
    """Refuse a URL with credentials, since messages show URLs; the error does not repeat the credentials."""
    if (found := credentials_in(url)) is not None:
        why = "messages, logs and Spark's UI show URLs"
        raise ValueError(f"credentials do not belong in a URL, since {why}: remove {found}, and use {instead}")


def web_address(what: str, *, instead: str, several: bool = False) -> AfterValidator:
    """Return a validator that refuses credentials and removes slashes at the end; ``several`` allows a list of URLs."""

    def validate(url: str) -> str:
        if several:
            return ",".join(one(each.strip()) for each in url.split(","))
        return one(url)

    def one(url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{what} is a URL: http://host:port or https://host")
        refuse_credentials(url, instead=instead)
        return url.rstrip("/")

    return AfterValidator(validate)


# Services with AWS's API.

Endpoint = Annotated[str, web_address("an endpoint", instead="access_key and secret_key")]

AWS_KEYS = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}
"""The environment variables of the keys, by setting."""


class AwsAccess(Model):
    """The address and the keys for a service with AWS's API."""

    endpoint: Endpoint | None = Field(None, description="URL of the service; leave out for AWS itself.")
    access_key: SecretStr | None = Field(None, description="Access key id; give it as ${AWS_ACCESS_KEY_ID}.")
    secret_key: SecretStr | None = Field(None, description="Secret key; give it as ${AWS_SECRET_ACCESS_KEY}.")
    session_token: SecretStr | None = Field(None, description="Token of temporary credentials.")

    def _contradictions(self) -> Iterator[str]:
        if (self.access_key is None) != (self.secret_key is None):
            yield "access_key and secret_key belong together: give both or none"


def aws_settings(environment: Mapping[str, str], service: str) -> dict[str, str]:
    settings = {
        "endpoint": environment.get(f"AWS_ENDPOINT_URL_{service}") or environment.get("AWS_ENDPOINT_URL"),
        "region": environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1",
        **{key: environment.get(variable) for key, variable in AWS_KEYS.items()},
    }
    return {name: value for name, value in settings.items() if value}


class S3(AwsAccess):
    """An S3-compatible store.

    Without ``access_key`` and ``secret_key``, each process logs in by the AWS default chain (environment, profile,
    web identity, instance).
    """

    region: str = Field("us-east-1", description="Region that requests are signed for.")
    path_style: bool | None = None
    """true puts the bucket into the URLs' path instead of the host name. Default: true with an endpoint, else false."""

    @property
    def uses_path_style(self) -> bool:
        return self.endpoint is not None if self.path_style is None else self.path_style


_REGION = "us-east-1"


def _glue_endpoint(region: str) -> str:
    return f"https://glue.{region}.amazonaws.com"


class GlueRegistry(AwsAccess):
    """A schema registry of AWS Glue. Without keys, every process uses AWS's default chain."""

    region: str = Field(_REGION, description="Region of the registry.")
    name: str = Field("default-registry", description="The registry's name.")


class Registry(Model):
    """A Schema Registry with Confluent's API, or one of AWS Glue."""

    url: Annotated[str, web_address("a registry", instead="username and password", several=True)]
    """The base URL, or several separated by commas. For Apicurio it ends in /apis/ccompat/v7."""
    glue: GlueRegistry | None = None
    """Instead of a URL: a registry of AWS Glue. The values then have AWS's framing, and subject names Glue's schema."""
    username: str | None = Field(None, description="User for HTTP basic authentication.")
    password: SecretStr | None = Field(None, description="Password for HTTP basic authentication.")
    token: SecretStr | None = Field(None, description="Instead of a user: a bearer token; give it as ${NAME}.")
    token_url: Annotated[str, web_address("a server of tokens", instead="client_id and client_secret")] | None = None
    """Instead of a token: the URL of an OAuth 2.0 server that issues tokens; they are renewed before they expire."""
    client_id: str | None = Field(None, description="With token_url: the client's name.")
    client_secret: SecretStr | None = Field(None, description="With token_url: the client's secret.")
    scope: str | None = Field(None, description="With token_url: the OAuth scope to request.")

    @model_validator(mode="before")
    @classmethod
    def _bare_url(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(glue := data.get("glue"), dict) and "url" not in data:
            return {**data, "url": glue.get("endpoint") or _glue_endpoint(glue.get("region", _REGION))}
        return {"url": data} if isinstance(data, str) else data

    @property
    def glue_place(self) -> str | None:
        """The region and the name of a registry of AWS Glue, with a slash between; None for other registries."""
        return None if self.glue is None else f"{self.glue.region}/{self.glue.name}"

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        own = self.glue is not None and (self.glue.endpoint or _glue_endpoint(self.glue.region))
        if own and (self.username or self.token or self.token_url or self.url != own):
            yield "glue has its own endpoint and keys: leave out url, username, token and token_url"
        if (self.username is None) != (self.password is None):
            yield ConfigProblem("username and password belong together", key="username", hint="give both or none")
        given = {name for name in ("token_url", "client_id", "client_secret") if getattr(self, name) is not None}
        if len(given) not in (0, 3) or (self.scope is not None and not given):
            what = "token_url, client_id and client_secret belong together"
            yield ConfigProblem(what, key=next(iter(given), "scope"), hint="give all three or none")
        if [self.username, self.token, self.token_url].count(None) < 2:
            yield "username, token and token_url are three ways to log in: give one"

    @classmethod
    def from_environment(cls, url: str, environment: Mapping[str, str]) -> Registry:
        """Return a registry whose login comes from the variables ``SCHEMA_REGISTRY_…``."""
        validated(cls, f"registry {url}", url=url)
        names = [name for name in cls.model_fields if name not in ("url", "glue")]
        found = {name: environment.get(f"SCHEMA_REGISTRY_{name.upper()}") for name in names}
        given = {name: value for name, value in found.items() if value}
        return validated(cls, "the SCHEMA_REGISTRY_ variables of the environment", url=url, **given)

    @property
    def credentials(self) -> SecretStr | None:
        """The login as the JVM's client reads it (``io.lakefeed.http.Login``); None without a login."""
        if self.glue is not None:
            keys = (self.glue.access_key, self.glue.secret_key, self.glue.session_token)
            return SecretStr("\n".join(key.get_secret_value() for key in keys if key)) if keys[0] else None
        if self.username is not None and self.password is not None:
            return SecretStr(f"{self.username}:{self.password.get_secret_value()}")
        names = ("token", "token_url", "client_id", "client_secret", "scope")
        found = {name: plain(value) for name in names if (value := getattr(self, name)) is not None}
        return SecretStr(json.dumps(found, separators=(",", ":"))) if found else None

    @property
    def credentials_name(self) -> str | None:
        """The name under which the JVM stores the login; None without a login."""
        if self.glue is not None:
            return f"{self.glue.access_key.get_secret_value()}@{self.url}" if self.glue.access_key else None
        login = self.username or self.client_id or ("token" if self.token is not None else None)
        return None if login is None else f"{login}@{self.url}"


# Iceberg catalogs.

_SQLITE = "jdbc:sqlite:"
CATALOG_FILE = "catalog.db"
# By kind of catalog, the prefixes that its uri may have. Glue has no uri, only a region.
_URIS = {"jdbc": ("jdbc:",), "rest": ("http://", "https://"), "hive": ("thrift://",), "glue": ()}
# The settings that belong to one kind of catalog only.
_OF_KIND = {
    **dict.fromkeys(("username", "password"), "jdbc"),
    **dict.fromkeys(("credential", "token", "scope", "oauth2_server_uri", "vended_credentials"), "rest"),
}
_NO_HADOOP = (
    "the Hadoop catalog is not supported: on S3 it loses one of two commits that succeed at the same time "
    "(apache/iceberg#970)"
)


def _refuse_login(uri: str) -> None:
    refuse_credentials(uri, instead="username and password, token or credential")


def _warehouse(path: str, info: ValidationInfo) -> str:
    refuse_credentials(path, instead="the block s3")
    if path.startswith("s3a://"):
        raise ValueError("write the warehouse as s3://…, which Iceberg and the other engines expect")
    # The warehouse of a REST catalog is a name that the server defines.
    is_folder = is_local(path) and info.data.get("type") != "rest"
    return local_path(path) if is_folder else path.rstrip("/")


class Catalog(Model):
    """An Iceberg catalog. The Hadoop catalog is not supported: on S3 it loses commits (apache/iceberg#970)."""

    type: Literal["jdbc", "rest", "hive", "glue"] = "jdbc"
    """The kind of catalog: jdbc (SQLite, PostgreSQL), rest, hive (a Hive metastore) or glue."""
    uri: Annotated[str, checked(_refuse_login)] = ""
    """jdbc:sqlite:/path/catalog.db, jdbc:postgresql://host/db, the REST URL or thrift://host:9083; no uri for Glue.
    With a warehouse on this machine, the default is the SQLite file catalog.db in the warehouse."""
    warehouse: Annotated[str, AfterValidator(_warehouse)] | None = None
    """Where the tables are: s3://bucket/path, or /path on this machine. For rest, the server's name for the
    warehouse."""
    username: str | None = Field(None, description="Database user, for jdbc.")
    password: SecretStr | None = Field(None, description="Database password, for jdbc.")
    credential: SecretStr | None = None
    """OAuth2 client credential 'id:secret', for rest. The client gets tokens with it, and renews them in time."""
    token: SecretStr | None = Field(None, description="Bearer token, for rest.")
    scope: str | None = Field(None, description="OAuth2 scope, for rest. Default: catalog.")
    oauth2_server_uri: Annotated[str, checked(_refuse_login)] | None = None
    """The URL of the server that issues tokens for the credential, for rest. Default: v1/oauth/tokens below the uri."""
    vended_credentials: bool = False
    """For rest: get the keys for a table's files from the catalog."""
    properties: dict[str, Text] = Field(default_factory=dict)
    """Further Iceberg catalog properties, passed unchanged. A value from ${…} is kept secret, and so is the value of a
    property that names a secret."""

    @model_validator(mode="before")
    @classmethod
    def _file_beside_tables(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("type", "jdbc") == "jdbc" and not data.get("uri"):
            warehouse = data.get("warehouse")
            if isinstance(warehouse, str) and is_local(warehouse):
                with suppress(ValueError):  # The validator of ``warehouse`` reports a wrong path.
                    return {**data, "uri": f"{_SQLITE}{local_folder(warehouse) / CATALOG_FILE}"}
        return data

    @field_validator("type", mode="before")
    @classmethod
    def _not_hadoop(cls, kind: Any) -> Any:
        if isinstance(kind, str) and kind.lower() == "hadoop":
            hint = "write type: jdbc, uri: jdbc:sqlite:/path/catalog.db, which needs no server"
            raise ConfigProblems(ConfigProblem(_NO_HADOOP, hint=hint))
        return kind

    @field_validator("properties")
    @classmethod
    def _one_place_for_each_setting(cls, properties: dict[str, str]) -> dict[str, str]:
        found = []
        for key, kinds in {"type": "", "catalog-impl": ": jdbc, rest, hive or glue"}.items():
            if key in properties:
                is_hadoop = "hadoop" in properties[key].lower()
                what = _NO_HADOOP if is_hadoop else f"'{key}' repeats the setting 'type'"
                found.append(ConfigProblem(what, key=key, hint=f"set catalogs.<name>.type{kinds}"))
        raise_problems(found)
        return properties

    def _contradictions(self) -> Iterator[str]:
        prefixes = _URIS[self.type]
        if prefixes and not self.uri.startswith(prefixes):
            yield f"the uri of a {self.type} catalog starts with {' or '.join(prefixes)}"
        if not prefixes and self.uri:
            yield "a glue catalog has no uri, only a region: s3.region"
        if self.type != "rest" and self.warehouse is None:
            yield f"a {self.type} catalog requires a warehouse: s3://bucket/path, or /path on this machine"
        if self.type == "glue" and self.folder is not None:
            yield "the warehouse of a glue catalog is in S3: s3://bucket/path"
        for name, kind in _OF_KIND.items():
            if kind != self.type and getattr(self, name):
                yield f"{name} is for a {kind} catalog, not for {self.type}"
        if self.token is not None and self.credential is not None:
            yield "token and credential are two logins: give one"

    @property
    def folder(self) -> Path | None:
        """The folder on this machine that has the tables; None if a store has them."""
        if self.type == "rest" or not is_local(self.warehouse):
            return None
        return local_folder(self.warehouse or "")

    @property
    def sqlite_file(self) -> Path | None:
        """The file of a catalog in SQLite; None for other catalogs."""
        if not self.uri.startswith(_SQLITE):
            return None
        return Path(self.uri.removeprefix(_SQLITE).removeprefix("file:").partition("?")[0])

    def settings(self) -> dict[str, str]:
        """Return Iceberg's properties for this catalog, without any secret."""
        known = {
            "type": self.type,
            "uri": self.uri or None,
            "warehouse": self.warehouse,
            "jdbc.schema-version": "V1" if self.type == "jdbc" else None,
            # By default, SQLite's driver fails after 3 s, and on a busy disk another writer's commit may take longer.
            "jdbc.busy_timeout": "60000" if self.sqlite_file is not None else None,
            "jdbc.user": self.username,
            # Renew tokens with the credential, since some login servers do not exchange tokens (RFC 8693).
            "token-exchange-enabled": None if self.credential is None else "false",
            # By default, Iceberg's client has no timeout and would wait forever for a server that does not answer.
            "rest.client.connection-timeout-ms": "10000" if self.type == "rest" else None,
            "rest.client.socket-timeout-ms": "120000" if self.type == "rest" else None,
            "scope": self.scope,
            "oauth2-server-uri": self.oauth2_server_uri,
            "header.X-Iceberg-Access-Delegation": "vended-credentials" if self.vended_credentials else None,
        }
        named = {key: value for key, value in known.items() if value is not None}
        return {**named, **shown(self.properties)}

    def secrets(self) -> dict[str, SecretStr]:
        """Return Iceberg's secret properties for this catalog."""
        known = {"jdbc.password": self.password, "credential": self.credential, "token": self.token}
        named = {key: secret for key, secret in known.items() if secret is not None}
        return {**named, **hidden(self.properties)}


class Connections(Model):
    """The connections of a Spark session: the store, the catalogs by name, and the source of another package."""

    s3: S3 = Field(default_factory=S3)
    catalogs: dict[str, Catalog] = Field(default_factory=dict)
    source: SerializeAsAny[Model] | None = None
    """The completed settings of a source of an installed package; None for lakefeed's own sources."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Connections:
        """Return the store and the catalog ``lake`` from the environment's variables."""
        catalogs = {}
        uri, warehouse = environment.get("LAKEFEED_CATALOG_URI"), environment.get("LAKEFEED_WAREHOUSE")
        if uri or is_local(warehouse):
            settings = {"type": "jdbc" if not uri or uri.startswith("jdbc:") else "rest", "uri": uri or ""}
            if warehouse:
                settings["warehouse"] = warehouse
            catalogs["lake"] = validated(Catalog, "LAKEFEED_CATALOG_URI and LAKEFEED_WAREHOUSE", **settings)
        s3 = validated(S3, "the AWS variables of the environment", **aws_settings(environment, "S3"))
        found = cls(s3=s3, catalogs=catalogs)
        remember(texts_of(found))
        return found

    def catalog(self, name: str) -> Catalog:
        if (found := self.catalogs.get(name)) is not None:
            return found
        known = ", ".join(self.catalogs) or "none declared"
        hint = f"declare catalogs.{name} in the pipeline, or set LAKEFEED_CATALOG_URI and LAKEFEED_WAREHOUSE, "
        hint += "which name the catalog 'lake'"
        raise ConfigError(f"no catalog is called '{name}'", where=f"catalogs: {known}", hint=hint)
