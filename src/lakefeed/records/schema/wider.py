"""Which type reads the values of two, where no part is a type of its own."""

from __future__ import annotations

from lakefeed.records.schema.avro import Primitive

# What Avro's resolution reads into a wider type, and what of it a table's column can become.
_READS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_WIDENS = {"int": "long", "float": "double"}
_UNITS = ("millis", "micros", "nanos")


def wider(ours: Primitive, other: Primitive) -> Primitive | None:
    """The type that reads both and that our column can become; None if there is none."""
    if "decimal" in (ours.logical, other.logical):
        return _wider_decimal(ours, other) if ours.logical == other.logical else None
    if ours.name == other.name or ours.name in _READS.get(other.name, ()):
        # A plain number is taken for what the other side says that it is.
        plain = None in (ours.logical, other.logical)
        return ours if plain or ours.logical == other.logical or _reads_unit(ours, other) else None
    if _WIDENS.get(ours.name) == other.name and ours.logical is None and other.logical is None:
        return other
    return None


def _wider_decimal(ours: Primitive, other: Primitive) -> Primitive | None:
    if ours.name != other.name:
        return None
    left = (ours.precision or 0) - ours.scale, (other.precision or 0) - other.scale
    if other.scale <= ours.scale and left[1] <= left[0]:
        return ours
    return other if other.scale == ours.scale else None


def _reads_unit(ours: Primitive, other: Primitive) -> bool:
    """Whether a moment of another unit is one of ours: the decoder converts it where nothing is lost."""
    family, _, unit = str(ours.logical).rpartition("-")
    their_family, _, their_unit = str(other.logical).rpartition("-")
    if not family or family != their_family:
        return False
    # Spark holds milliseconds as microseconds.
    finest = "micros" if unit == "millis" and family != "time" else unit
    return _UNITS.index(their_unit) <= _UNITS.index(finest)
