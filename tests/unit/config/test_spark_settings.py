"""A misspelt setting of Spark's is a warning with the right name; another package's settings pass."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lakefeed.config.spark_settings import known
from tests.support.pipeline_text import GOOD, Reader

OTHERS = (
    *("spark.sql.catalog.lake.client.factory", "spark.hadoop.fs.s3a.conection.maximum", "spark.databricks.delta.x"),
    *("spark.executorEnv.HOMEE", "spark.kubernetes.driver.label.ap", "spark.openlineage.transport.type"),
    *(
        "spark.mine",
        "spark.gluten.enabled",
        "spark.rapids.sql.enabled",
        "spark.ui.filters.x",
        "spark.eventLog.gcMetrics",
    ),
)


def warnings(reading: Reader, *settings: str) -> dict[str, str]:
    listed = ", ".join(f"{each}: x" for each in settings)
    config, found = reading(f"{GOOD}spark: {{{listed}}}\n")
    assert config is not None
    return {each.key.removeprefix("spark."): str(each.hint) for each in found if "has no setting" in each.what}


def test_a_misspelt_setting_is_a_warning_with_the_right_name(reading: Reader) -> None:
    found = warnings(reading, "spark.sql.shufle.partitions")
    assert found == {"spark.sql.shufle.partitions": "did you mean spark.sql.shuffle.partitions?"}


def test_each_letter_counts(reading: Reader) -> None:
    name = "spark.sql.adaptive.enabled"
    lost = {name[:at] + name[at + 1 :] for at in range(len("spark."), len(name)) if name[at] != "."}
    swapped = {name[:at] + name[at + 1] + name[at] + name[at + 2 :] for at in range(7, 16)}
    misspelt = sorted({*lost, *swapped, name + "s", "spark.sql.Adaptive.enabled"} - {name})
    assert set(warnings(reading, *misspelt)) == set(misspelt)


@pytest.mark.parametrize(
    "settings", [OTHERS, [each for each in known() if each.startswith("spark.sql.a")]], ids=["others", "Spark's"]
)
def test_what_spark_knows_and_what_is_anothers_passes(reading: Reader, settings: Sequence[str]) -> None:
    assert warnings(reading, *settings) == {}
