"""SQL and values reach Spark unchanged, even if the session replaces ``${name}`` in SQL."""

import os

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.clients.spark.jvm import function_catalog
from lakefeed.clients.spark.session import copy_of
from lakefeed.clients.spark.statements import Statement, expression, run
from lakefeed.config.transform import Transform
from lakefeed.errors import ConfigError
from lakefeed.records.transform import TransformSteps

TEXTS = (
    *(
        "${foo}",
        "${env:HOME}",
        "${system:user.dir}",
        "${spark.app.name}",
        "${env:HOME",
        "it's",
        '"',
        "a`b",
        "\\",
        "\\'",
    ),
    *("-- no", "/* no */", "a\nb", ";", "\\u0041", ":value0", "?", "❄", "' OR '1' = '1"),
)


@pytest.fixture(params=["ours", "users", "literals as Spark 1 reads them"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> SparkSession:
    own = copy_of(spark)
    own.conf.set("spark.sql.variable.substitute", str(request.param != "ours").lower())
    own.conf.set("spark.sql.parser.escapedStringLiterals", str(request.param.startswith("literals")).lower())
    own.conf.set("foo", "replaced")
    return own


@pytest.mark.quick
def test_texts_in_sql_reach_spark_unchanged(session: SparkSession) -> None:
    names = ", ".join(f":value{at} AS {quoted((text,))}" for at, text in enumerate(TEXTS))
    values = {f"value{at}": text for at, text in enumerate(TEXTS)}
    found = run(session, Statement.of(f"SELECT {names}", values))
    assert found.columns == list(TEXTS)
    assert list(found.collect()[0]) == list(TEXTS)
    [row] = found.select(expression(session, f"concat({quoted(('${env:HOME}',))}, ' ${{env:HOME}}')")).collect()
    assert row[0] == "${env:HOME} ${env:HOME}"
    assert run(session, "SELECT '${env:HOME}', 1 AS `${foo}`").collect()[0].asDict()["${foo}"] == 1


def test_a_statement_is_printed_with_its_values() -> None:
    shown = Statement.of("SET (:key0 = :value0) -- :other", {"key0": "it's", "value0": ":key0 \\"})
    assert shown == "SET ('it\\'s' = ':key0 \\\\') -- :other"
    assert (shown.sql, shown.values["value0"]) == ("SET (:key0 = :value0) -- :other", ":key0 \\")


@pytest.mark.quick
def test_no_variable_is_replaced_in_a_decoders_schema(session: SparkSession) -> None:
    assert os.environ["HOME"]
    schema = '{"type": "record", "name": "R", "fields": [{"name": "s", "type": "string", "default": "${env:HOME}"}]}'
    options = {"format": "json", "reader-schema": schema}
    catalog = function_catalog(session, "io.lakefeed.decode.DecodeCatalog", options)
    decoded = session.range(1).select(sf.call_function(f"{catalog}.decode", sf.lit(b"{}")).alias("decoded"))
    assert decoded.collect()[0].decoded.value.s == "${env:HOME}"


def test_the_error_names_the_view_of_the_rows_if_a_transform_reads_another_view(spark: SparkSession) -> None:
    steps = TransformSteps(Transform(sql="SELECT id FROM `topic-of-trips`"), view="trips")
    with pytest.raises(ConfigError, match="does not fit the rows") as refused:
        steps(spark.range(1))
    assert (refused.value.hint or "").startswith("read the rows by the view's name: FROM trips; ")
