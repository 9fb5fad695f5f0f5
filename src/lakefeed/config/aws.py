"""What the blocks of services with AWS's API have in common."""

from __future__ import annotations

from typing import Self

from pydantic import SecretStr, field_validator, model_validator

from lakefeed.config.base import Model
from lakefeed.config.urls import refuse_credentials


class AwsAccess(Model):
    """Where a service is, and with which keys it is asked.

    Without keys each process uses the AWS default chain (environment, profile, web identity, instance).
    """

    endpoint: str | None = None
    access_key: SecretStr | None = None
    secret_key: SecretStr | None = None
    session_token: SecretStr | None = None

    @field_validator("endpoint")
    @classmethod
    def _endpoint_is_url(cls, endpoint: str | None) -> str | None:
        if endpoint is not None and not endpoint.startswith(("http://", "https://")):
            raise ValueError("an endpoint is a URL: http://host:port or https://host")
        if endpoint is not None:
            refuse_credentials(endpoint, instead="access_key and secret_key")
        return endpoint and endpoint.rstrip("/")

    @model_validator(mode="after")
    def _keys_come_in_pairs(self) -> Self:
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key belong together: give both or none")
        return self
