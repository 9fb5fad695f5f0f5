"""The check finds SQL that code composes from parts, and values between quotes."""

import pytest

from tools.check_sql import in_java, in_python


@pytest.mark.parametrize(
    "source",
    [
        'spark.sql(f"SELECT {name}")',
        'spark.sql("SELECT " + name)',
        'spark.sql("SELECT {}".format(name))',
        "self._spark.sql(statement)",
        'spark.sql(*["SELECT 1"])',
        "sf.expr(rule)",
        "expr(text)",
        'rows.selectExpr("id", f"{sql} AS x")',
        "rows.selectExpr(*columns)",
        'rows.filter(f"topic = {topic}")',
        'rows.where("topic = " + topic)',
        'rows.where("a AND %s" % rule)',
        'table.scan(row_filter=f"feed = {feed}")',
        "run(spark, f\"DELETE FROM t WHERE topic = '{topic}'\")",
        "Statement.of(f\"SET ('{key}' = :value)\", {})",
    ],
)
def test_sql_built_from_parts_is_found(source: str) -> None:
    assert [line for line, _ in in_python(f"import x\n{source}\n")] == [2]


@pytest.mark.parametrize(
    "source",
    [
        'spark.sql("SELECT 1 " "AS one")',
        "rows.selectExpr(*COLUMNS)",
        'run(spark, f"DROP TABLE {quoted(path)}")',
        "run(spark, f\"SELECT 'a', {column} FROM t WHERE x = :x\", {})",
        "rows.filter(~sf.col(COPY))",
        'rows.filter("rows > 1")',
        "rows.where(sf.col(name) == topic)",
        'table.scan(row_filter=equal("feed", feed))',
        "Counts.of(f\"'{word}'\")",
    ],
)
def test_sql_in_literals_and_values_in_parameters_are_accepted(source: str) -> None:
    assert list(in_python(source)) == []


def test_sql_built_from_parts_is_found_in_java() -> None:
    source = 'spark.sql("SELECT 1");\nspark.sql(text);\nsession.sessionState().sqlParser();\nrows.selectExpr(name)'
    assert [line for line, _ in in_java(source)] == [2, 3, 4]
