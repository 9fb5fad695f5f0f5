"""Values as bytes, undecoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_decoded(records: DataFrame) -> DataFrame:
    """``records`` and the column ``decoded``, whose value is a struct of the bytes alone."""
    from pyspark.sql import functions as sf

    value = sf.when(sf.col("value").isNotNull(), sf.struct(sf.col("value").alias("value")))
    return records.withColumn(
        "decoded",
        sf.struct(
            value.alias("value"),
            sf.lit(None).cast("int").alias("schema_id"),
            sf.lit(None).cast("string").alias("error"),
        ),
    )
