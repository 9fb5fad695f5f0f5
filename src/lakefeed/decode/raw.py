"""Values as bytes, undecoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_decoded(records: DataFrame) -> DataFrame:
    """``records`` and the column ``decoded``, whose value is a struct of the bytes alone."""
    from pyspark.sql import functions as F

    value = F.when(F.col("value").isNotNull(), F.struct(F.col("value").alias("value")))
    return records.withColumn(
        "decoded",
        F.struct(
            value.alias("value"),
            F.lit(None).cast("int").alias("schema_id"),
            F.lit(None).cast("string").alias("error"),
        ),
    )
