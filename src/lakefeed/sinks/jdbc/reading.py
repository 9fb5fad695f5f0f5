"""A database's rows as Arrow, a part at a time, for those who look at many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.sinks.jdbc.columns import columns_of
from lakefeed.sinks.jdbc.ledger import JdbcLedger
from lakefeed.sinks.jdbc.session import ReadSession

if TYPE_CHECKING:
    from pyarrow import RecordBatch


@dataclass(frozen=True)
class DatabaseRows:
    """The rows of a feed's table: whole numbers and texts of them."""

    session: ReadSession
    ledger: JdbcLedger

    @property
    def columns(self) -> set[str]:
        """The table's columns."""
        return set(columns_of(self.session, self.ledger.dialect, self.ledger.schema, self.ledger.table))

    @property
    def where(self) -> str:
        """As errors name it."""
        return self.ledger.where

    def read(self, columns: Sequence[str]) -> Any:
        """Reads columns by a cursor on the server."""
        import pyarrow as pa

        kinds = {"kafka_partition": pa.int32(), "kafka_offset": pa.int64()}
        schema = pa.schema([(column, kinds.get(column, pa.string())) for column in columns])
        listed = ", ".join(self.ledger.dialect.name(column) for column in columns)
        statement = f"SELECT {listed} FROM {self.ledger.name(self.ledger.table)}"  # noqa: S608

        def batches() -> Iterator[RecordBatch]:
            for rows in self.session.scan(statement):
                values = zip(*rows, strict=True)
                arrays = [pa.array(column, each.type) for column, each in zip(values, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())
