"""The block ``lineage`` of a pipeline file."""

from __future__ import annotations

import re
import uuid
from typing import Annotated

from pydantic import Field, SecretStr

from lakefeed.config.base import checked
from lakefeed.config.blocks import Block
from lakefeed.config.connections import web_address
from lakefeed.config.values import Period

_PARENT = re.compile(r"(?P<namespace>.+)/(?P<job>[^/]+)/(?P<run>[0-9A-Fa-f-]{32,36})")


def _require_parent(text: str) -> None:
    found = _PARENT.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        uuid.UUID(found["run"])
    except ValueError:
        raise ValueError("write the parent as namespace/job/run id; the run id is a UUID") from None


class Lineage(Block):
    """A server, such as Marquez, that receives OpenLineage events of the runs. Its failures delay no batch."""

    url: Annotated[str, web_address("a lineage server", instead="api_key")]
    """Base URL of the server. The driver posts events to this URL plus endpoint."""
    endpoint: str = Field("/api/v1/lineage", pattern=r"^/[^?#]*$", description="Path that is appended to the URL.")
    api_key: SecretStr | None = Field(
        None, description="API key, sent as a bearer token; give it as ${OPENLINEAGE_API_KEY}."
    )
    namespace: str = Field("default", min_length=1, max_length=1024, description="Namespace of the job.")
    job: str | None = Field(None, min_length=1, max_length=1024, description="Name of the job. Default: the feed's.")
    parent: Annotated[str, checked(_require_parent)] | None = None
    """The run that started this one, in the format of Airflow and dbt: namespace/job/run id."""
    every: Period = Field("1 minute", description="Time between two RUNNING events, while the feed commits batches.")
    timeout_seconds: float = Field(
        5, gt=0, le=60, description="How long the driver waits for the server, per event and at a run's end."
    )

    @property
    def parent_parts(self) -> tuple[str, str, str] | None:
        """The parent's namespace, job and run id."""
        found = _PARENT.fullmatch(self.parent or "")
        return None if found is None else (found["namespace"], found["job"], str(uuid.UUID(found["run"])))
