"""The block of a pipeline file for streams of Kinesis, and how they are reached."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from lakefeed.config.aws import AwsAccess
from lakefeed.config.names import Count

STREAM = re.compile(r"[a-zA-Z0-9_.-]{1,128}")


class KinesisAccess(AwsAccess):
    """How Kinesis is reached. What is left out comes from the environment.

    Without keys each process uses the AWS default chain (environment, profile, web identity, instance).
    """

    endpoint: str | None = Field(
        None, description="URL of the service. Default: AWS_ENDPOINT_URL_KINESIS or AWS_ENDPOINT_URL, else AWS itself."
    )
    region: str | None = Field(None, description="Region of the stream. Default: AWS_REGION, else us-east-1.")
    access_key: SecretStr | None = Field(None, description="Access key id. Default: AWS_ACCESS_KEY_ID.")
    secret_key: SecretStr | None = Field(None, description="Secret key. Default: AWS_SECRET_ACCESS_KEY.")
    session_token: SecretStr | None = Field(
        None, description="Token of temporary credentials. Default: AWS_SESSION_TOKEN."
    )

    def completed(self, environment: Mapping[str, str]) -> KinesisAccess:
        """The same, with what the environment names where nothing is said here."""
        found = {
            "endpoint": environment.get("AWS_ENDPOINT_URL_KINESIS") or environment.get("AWS_ENDPOINT_URL"),
            "region": environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1",
        }
        if self.access_key is None:
            found |= {
                "access_key": environment.get("AWS_ACCESS_KEY_ID"),
                "secret_key": environment.get("AWS_SECRET_ACCESS_KEY"),
                "session_token": environment.get("AWS_SESSION_TOKEN"),
            }
        said = {name: value for name in KinesisAccess.model_fields if (value := getattr(self, name)) is not None}
        return KinesisAccess.model_validate({**{name: value for name, value in found.items() if value}, **said})


class KinesisSource(KinesisAccess):
    """A stream of Kinesis."""

    stream: str = Field(description="The stream's name.")
    start: Literal["earliest", "latest"] = Field(
        "earliest", description="Where a new feed begins; afterwards it resumes where its last commit ended."
    )
    max_records_per_batch: Count = Field(
        100_000, description="Upper bound on the records of one micro-batch, over all shards."
    )

    @field_validator("stream")
    @classmethod
    def _stream_name(cls, stream: str) -> str:
        if not STREAM.fullmatch(stream):
            raise ValueError(
                "a stream's name has letters, digits, '_', '.' and '-'; for an ARN, what is behind the '/'"
            )
        return stream

    @property
    def topics(self) -> list[str]:
        """The stream, as what schemas are registered for."""
        return [self.stream]
