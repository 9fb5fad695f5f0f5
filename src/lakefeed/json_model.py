"""Types of the fields in JSON documents for programs; pydantic writes and reads the documents."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer


def iso(seconds: float | None) -> str | None:
    """Format seconds since 1970 as UTC in ISO 8601, to the millisecond."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _since_1970(value: Any) -> Any:
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else value
    except (OverflowError, OSError):
        raise ValueError("the year is out of range") from None


# Python's datetime has the years 1 to 9999.
Time = Annotated[float, BeforeValidator(_since_1970), Field(ge=-62135596800, lt=253402300800), PlainSerializer(iso)]
"""A time as seconds since 1970; JSON has it in UTC, in ISO 8601."""
Seconds = Annotated[float, PlainSerializer(rounded)]
"""A duration, an age or a rate; JSON has it rounded to three decimals."""


class JsonModel(BaseModel):
    """A model whose JSON document has its fields and its computed fields.

    Reading ignores unknown keys, which another version may have written, and computes computed fields again.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, populate_by_name=True, serialize_by_alias=True)

    def as_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json")
