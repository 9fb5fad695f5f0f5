"""The sizes that ``lakefeed bench scale`` lets grow, one at a time, and how far."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Literal, get_args

from lakefeed.errors import ConfigError

DimensionName = Literal["rows", "partitions", "columns", "bytes", "files", "batches", "topics"]
DIMENSION_NAMES: tuple[DimensionName, ...] = get_args(DimensionName)


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """One size that grows while all others stay.

    Attributes:
        title: of its chart.
        label: of its axis.
        sizes: that are measured, in their order.
        steady: the batches that are measured at each size, after the first ones.
        bound: the exponent that the cost of a batch must not exceed. 0 for what only adds up while a feed runs: a cost
            that grows with it would make the whole run super-linear.
        note: what stays.
    """

    name: DimensionName
    title: str
    label: str
    sizes: tuple[int, ...]
    steady: int
    bound: float = 1.0
    note: str

    def up_to(self, most: int) -> Dimension:
        """Return the same dimension with an upper bound, which is measured itself."""
        sizes = tuple(size for size in self.sizes if size < most)
        return replace(self, sizes=(*sizes, most))


_FILE = files("lakefeed.bench").joinpath("scale_dimensions.toml")
DIMENSIONS: Mapping[DimensionName, Dimension] = {
    name: Dimension(name=name, **{**block, "sizes": tuple(block["sizes"])})
    for name, block in tomllib.loads(_FILE.read_text("utf-8")).items()
    if name in DIMENSION_NAMES
}


def chosen(names: Iterable[DimensionName], bounds: Mapping[str, int]) -> list[Dimension]:
    """Return the dimensions of these names, all of them if there is none, up to their bounds.

    Raises:
        ConfigError: a bound is of no dimension, or leaves less than two sizes.
    """
    requested = tuple(names) or DIMENSION_NAMES
    for name, most in bounds.items():
        if name not in requested:
            raise ConfigError(f"--most {name}={most} bounds no dimension", hint=f"it can be {', '.join(requested)}")
    found = [DIMENSIONS[name].up_to(bounds[name]) if name in bounds else DIMENSIONS[name] for name in requested]
    for dimension in found:
        if len(dimension.sizes) < 2:
            first, second, *_ = DIMENSIONS[dimension.name].sizes
            what = f"--most {dimension.name}={bounds[dimension.name]} leaves nothing that grows"
            raise ConfigError(what, hint=f"its smallest sizes are {first} and {second}")
    return found


def bounds_of(texts: Iterable[str]) -> dict[str, int]:
    """Read upper bounds, each as ``dimension=number``."""
    bounds: dict[str, int] = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in DIMENSION_NAMES or not number.replace("_", "").isdecimal() or int(number) < 1:
            hint = f"write DIMENSION=NUMBER, with one of {', '.join(DIMENSION_NAMES)}"
            raise ConfigError(f"--most {text} is no upper bound", hint=hint)
        bounds[name] = int(number)
    return bounds
