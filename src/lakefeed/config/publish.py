"""The block of a pipeline file for write-audit-publish: when the feed publishes a branch, and the audit before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from lakefeed.config.base import Model, checked
from lakefeed.config.values import Period, seconds_of

EACH_BATCH, BY_COMMAND = "each batch", "command"
Share = Annotated[float, Field(ge=0, le=1)]
Column = Annotated[str, StringConstraints(min_length=1)]


def _require_when(text: str) -> None:
    if text in (EACH_BATCH, BY_COMMAND):
        return
    try:
        seconds = seconds_of(text)
    except ValueError:
        seconds = 0
    if not seconds:
        raise ValueError(f"write '{EACH_BATCH}', a time such as '10 minutes', or '{BY_COMMAND}'")


class Count(Model):
    """Bounds on a number of rows."""

    at_least: Annotated[int, Field(ge=0)] | None = Field(None, description="The least number of rows.")
    at_most: Annotated[int, Field(ge=0)] | None = Field(None, description="The largest number of rows.")

    def _contradictions(self) -> Iterator[str]:
        if self.at_least is None and self.at_most is None:
            yield "give at_least or at_most"
        elif self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            yield "at_least is more than at_most"


class Fresh(Model):
    """A bound on the age of the newest row."""

    column: Column = Field(description="The column with the rows' timestamp.")
    within: Period = Field(description="The highest age of the newest row: '<n> minutes|hours|days'.")


class TableExpectations(Model):
    """Conditions that the table in the branch must meet before the feed publishes it."""

    rows: Count | None = Field(None, description="The number of rows in the table.")
    new_rows: Count | None = Field(None, description="How many more rows the branch has than the published table.")
    fresh: Fresh | None = Field(None, description="The age of the newest row.")
    null_share: dict[Column, Share] = Field(default_factory=dict)
    """By column: the highest share of rows with null, from 0 to 1; 0.01 for 1 %."""
    unique: list[Annotated[list[Column], Field(min_length=1)]] = Field(default_factory=list)
    """Lists of columns; no two rows may have the same values in all columns of a list: [[order_id], [shop, number]]."""

    def _contradictions(self) -> Iterator[str]:
        names = [tuple(column.lower() for column in columns) for columns in self.unique]
        if len(set(names)) < len(names):
            yield "unique has the same columns twice"


class Publish(Model):
    """When the feed publishes the branch to readers of the table, and the audit before."""

    when: Annotated[str, checked(_require_when)] = EACH_BATCH
    """'each batch'; a duration such as '10 minutes', for the first batch after this time and the end of the run; or
    'command', for `lakefeed tables publish` only."""
    on_failure: Literal["stop", "continue"] = "stop"
    """What happens if the audit fails; the rows stay in the branch. stop: stop the feed. continue: write further
    batches to the branch."""
    expect: TableExpectations = Field(default_factory=TableExpectations)

    @property
    def seconds(self) -> int | None:
        """The least number of seconds between two publications; None if only the command publishes."""
        if self.when == BY_COMMAND:
            return None
        return 0 if self.when == EACH_BATCH else seconds_of(self.when)
