"""The block ``otlp`` of a pipeline file."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator

from lakefeed.config.base import ConfigProblem, raise_problems
from lakefeed.config.blocks import Block
from lakefeed.config.connections import refuse_credentials
from lakefeed.config.secrets import Text
from lakefeed.config.values import Period

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _collector(url: str) -> str:
    if not re.match(r"https?://[^/]", url):
        raise ValueError("write the collector's URL as http://host:4318 or https://host")
    refuse_credentials(url, instead="headers")
    return url.rstrip("/")


class Otlp(Block):
    """A collector that receives the metrics by OTLP over HTTP. Requires lakefeed[otlp]."""

    endpoint: Annotated[str, AfterValidator(_collector)]
    """The collector's address: http://host:4318. If the URL has no path, the driver appends /v1/metrics."""
    headers: dict[str, Text] = Field(default_factory=dict)
    """Further headers, such as Authorization: Bearer ${OTLP_TOKEN}."""
    every: Period = Field("30 seconds", description="How often the driver sends the metrics.")
    timeout: Period = Field("10 seconds", description="How long a request may take; the feed does not wait for it.")
    attributes: dict[str, str] = Field(default_factory=dict)
    """Resource attributes, such as deployment.environment.name: production."""

    @field_validator("headers")
    @classmethod
    def _header_lines(cls, headers: dict[str, Any]) -> dict[str, Any]:
        raise_problems(
            ConfigProblem(
                f"HTTP cannot send the header '{name}'",
                key=name,
                hint="a header has a value of one line of ASCII, and a name of letters, digits and '-'",
            )
            for name, value in headers.items()
            if not _HEADER.fullmatch(name) or not str(value).isprintable() or not str(value).isascii()
        )
        return headers

    @property
    def url(self) -> str:
        has_path = "/" in self.endpoint.split("://", 1)[1]
        return self.endpoint if has_path else f"{self.endpoint}/v1/metrics"
