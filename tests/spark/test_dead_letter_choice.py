"""A replay selects dead letters in SQL, ``dead-letters list`` in Python: both select the same letters."""

from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from lakefeed.messages.printable import printable
from lakefeed.sinks.dead_letters.store import DeadLetterFilter, kind_of
from lakefeed.sinks.dead_letters.table import CHOSEN, _arguments
from tests.unit.sinks.dead_letters.test_store import REASONS


def test_sql_and_python_select_the_same_letters(spark: SparkSession) -> None:
    expected = [None, "", "byte 18", "of #", *(form for each in REASONS for form in (printable(each), kind_of(each)))]
    rows = [("f", None, "t", 0, at, 1, each) for at, each in enumerate(REASONS)]
    columns = "feed STRING, replay STRING, topic STRING, partition INT, offset INT, schema_id INT, reason STRING"
    spark.createDataFrame(rows, columns).createOrReplaceTempView("dead_letter_choice")
    parts = []
    for number, reason in enumerate(expected):
        arguments = {"feed": "f", **_arguments(DeadLetterFilter(feed="f", reason=reason))}
        parts.append(spark.sql(f"SELECT {number}, offset FROM dead_letter_choice {CHOSEN}", args=arguments))
    chosen = {tuple(row) for row in reduce(DataFrame.union, parts).collect()}
    assert chosen == {
        (number, at)
        for number, reason in enumerate(expected)
        for at, each in enumerate(REASONS)
        if DeadLetterFilter(feed="f", reason=reason).means(each)
    }
