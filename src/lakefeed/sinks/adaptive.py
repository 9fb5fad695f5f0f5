"""Shuffles of a batch that fit its size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADAPTIVE = "spark.sql.adaptive.enabled"


@contextmanager
def adaptive(session: SparkSession) -> Iterator[None]:
    """Lets Spark fit the shuffles of a batch to its size, which it does not in the session of a stream by itself."""
    before = str(session.conf.get(ADAPTIVE))
    session.conf.set(ADAPTIVE, "true")
    try:
        yield
    finally:
        session.conf.set(ADAPTIVE, before)
