"""How to reach what a pipeline talks to: S3 store, catalogs, Schema Registry.

Each connection can stand in ``pipeline.yaml``; what is left out comes from the environment, under the names
that other clients use too. Secrets have no default and print as ``**********``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator

from lakefeed.config.aws import AwsAccess
from lakefeed.config.base import Model
from lakefeed.config.catalog import Catalog
from lakefeed.config.kinesis import KinesisAccess
from lakefeed.config.secrets import texts_of
from lakefeed.config.urls import refuse_credentials
from lakefeed.errors import ConfigError
from lakefeed.messages.redaction import remember

__all__ = ["S3", "Catalog", "Connections", "Registry"]

Built = TypeVar("Built", bound=Model)


class S3(AwsAccess):
    """An S3-compatible store.

    Without ``access_key`` and ``secret_key`` each process uses the AWS default chain (environment, profile,
    web identity, instance).
    """

    endpoint: str | None = Field(None, description="URL of the store; leave out for AWS itself.")
    region: str = Field("us-east-1", description="Region that requests are signed for.")
    path_style: bool | None = Field(
        None, description="Bucket in the path instead of the host name. Default: true with an endpoint."
    )
    access_key: SecretStr | None = Field(None, description="Access key id; give it as ${AWS_ACCESS_KEY_ID}.")
    secret_key: SecretStr | None = Field(None, description="Secret key; give it as ${AWS_SECRET_ACCESS_KEY}.")
    session_token: SecretStr | None = Field(None, description="Token of temporary credentials.")

    @property
    def uses_path_style(self) -> bool:
        """Whether the bucket stands in the path."""
        return self.endpoint is not None if self.path_style is None else self.path_style

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> S3:
        """The store that AWS_ENDPOINT_URL_S3, AWS_REGION and the AWS key variables name.

        Raises:
            ConfigError: if a variable's value cannot be meant.
        """
        settings: dict[str, Any] = {
            "endpoint": environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL"),
            "region": environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1",
            "access_key": environment.get("AWS_ACCESS_KEY_ID"),
            "secret_key": environment.get("AWS_SECRET_ACCESS_KEY"),
            "session_token": environment.get("AWS_SESSION_TOKEN"),
        }
        return _validated(cls, settings, about="the AWS variables of the environment")


class Registry(Model):
    """A Schema Registry with Confluent's API."""

    url: str = Field(description="Base URL; for Apicurio it ends in /apis/ccompat/v7.")
    username: str | None = Field(None, description="User for HTTP basic authentication.")
    password: SecretStr | None = Field(None, description="Password for HTTP basic authentication.")

    @model_validator(mode="before")
    @classmethod
    def _bare_url(cls, data: Any) -> Any:
        return {"url": data} if isinstance(data, str) else data

    @field_validator("url")
    @classmethod
    def _url_without_credentials(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError("a registry is a URL: http://host:port or https://host")
        refuse_credentials(url, instead="username and password")
        return url.rstrip("/")


class Connections(Model):
    """What a Spark session needs to know: the store, the catalogs by name, and Kinesis where it is read."""

    s3: S3 = Field(default_factory=S3)
    catalogs: dict[str, Catalog] = Field(default_factory=dict)
    kinesis: KinesisAccess | None = None
    """None where nothing is read from Kinesis: then its client is not loaded."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Connections:
        """The store and the catalog ``lake`` that the environment names."""
        catalog = _catalog_from_environment(environment)
        found = cls(s3=S3.from_environment(environment), catalogs={"lake": catalog} if catalog is not None else {})
        remember(texts_of(found))
        return found

    def catalog(self, name: str) -> Catalog:
        """The catalog of that name.

        Raises:
            ConfigError: if none is declared.
        """
        try:
            return self.catalogs[name]
        except KeyError:
            raise ConfigError(
                f"no catalog is called '{name}'",
                where=f"catalogs: {', '.join(self.catalogs) or 'none declared'}",
                hint=f"declare catalogs.{name} in the pipeline, or set LAKEFEED_CATALOG_URI and "
                "LAKEFEED_WAREHOUSE, which name the catalog 'lake'",
            ) from None


def _catalog_from_environment(environment: Mapping[str, str]) -> Catalog | None:
    """The catalog that LAKEFEED_CATALOG_URI and LAKEFEED_WAREHOUSE name, if they do.

    Raises:
        ConfigError: if a variable's value cannot be meant.
    """
    uri = environment.get("LAKEFEED_CATALOG_URI")
    if not uri:
        return None
    settings = {
        "type": "jdbc" if uri.startswith("jdbc:") else "rest",
        "uri": uri,
        "warehouse": environment.get("LAKEFEED_WAREHOUSE"),
    }
    return _validated(Catalog, settings, about="LAKEFEED_CATALOG_URI and LAKEFEED_WAREHOUSE")


def _validated(model: type[Built], settings: Mapping[str, str | None], *, about: str) -> Built:
    try:
        return model.model_validate({name: value for name, value in settings.items() if value})
    except ValidationError as error:
        messages = {detail["msg"].removeprefix("Value error, ") for detail in error.errors(include_input=False)}
        raise ConfigError("; ".join(sorted(messages)), where=about) from None
