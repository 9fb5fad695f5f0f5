"""What a ``transformWithState`` in Python keeps, as its own ``init`` declares it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakefeed.errors import ConfigError, LakefeedError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Declared:
    """Stands in for Spark's ``StatefulProcessorHandle`` while ``init`` is asked which variables there are.

    Attributes:
        variables: each with its kind, name, types and time to live, sorted.
    """

    def __init__(self) -> None:
        self._described: list[str] = []

    @property
    def variables(self) -> list[str]:
        """In an order that does not hang on the code's."""
        return sorted(self._described)

    def getValueState(self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None) -> None:
        """See ``StatefulProcessorHandle.getValueState``."""
        self._add("value", stateName, [schema], ttlDurationMs)

    def getListState(self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None) -> None:
        """See ``StatefulProcessorHandle.getListState``."""
        self._add("list", stateName, [schema], ttlDurationMs)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: StructType | str,
        valueSchema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> None:
        """See ``StatefulProcessorHandle.getMapState``."""
        self._add("map", stateName, [userKeySchema, valueSchema], ttlDurationMs)

    def deleteIfExists(self, stateName: str) -> None:
        """A removed variable is not reported."""

    def _add(self, kind: str, name: str, schemas: list[StructType | str], ttl: int | None) -> None:
        types = " to ".join(_text(each) for each in schemas)
        self._described.append(f"{kind} {name} {types}{f', for {ttl} ms' if ttl else ''}")


def declared(pickled: bytes) -> str:
    """The variables of a stateful processor; asked as Spark asks it, by its ``init``.

    Args:
        pickled: the function of the operator, as PySpark hands it to the JVM.

    Raises:
        ConfigError: ``init`` fails.
    """
    from pyspark.serializers import CloudPickleSerializer

    serializer: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    command = serializer.loads(bytes(pickled))
    if not isinstance(command, tuple):
        # Larger than a megabyte: PySpark hands out a broadcast in its place.
        command = serializer.loads(command.value)
    processor = command[0].__self__._stateful_processor
    handle = Declared()
    try:
        processor.init(handle)
    except LakefeedError:
        raise
    except Exception as error:
        raise ConfigError(
            f"init(handle) of {type(processor).__name__} fails: {type(error).__name__}: {error}",
            where="transform",
            hint="init only declares variables: getValueState, getListState, getMapState, deleteIfExists",
        ) from error
    return "; ".join(handle.variables) or "nothing"


def _text(schema: StructType | str) -> str:
    """The same text for the same types, however they are written."""
    from pyspark.sql.types import DataType

    kind = schema if isinstance(schema, DataType) else DataType.fromDDL(schema)
    return kind.simpleString()
