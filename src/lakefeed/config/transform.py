"""The block of a pipeline file that says what happens between decoding and the sink."""

from __future__ import annotations

from pydantic import Field

from lakefeed.config.base import Model


class Transform(Model):
    """What happens between decoding and the sink."""

    sql: str = Field(description="One SELECT over the decoded records; their view has the pipeline's name.")
