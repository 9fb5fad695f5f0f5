"""The code that Spark generates for a feed's rows stays below the JVM's limit for the size of a method."""

from typing import Any

from pyspark.sql import SparkSession

from lakefeed.ledger.outcomes import BatchOutcomes
from lakefeed.records.decode import Json, RecordPolicy, classify, decoded
from lakefeed.records.decode.changes import DeleteRule

ROW = f"STRUCT<id: BIGINT, {', '.join(f'c{number}: STRING' for number in range(40))}>"
EVENT = Json(schema=f"before {ROW}, after {ROW}, source STRUCT<ts_ms: BIGINT>, op STRING, ts_ms BIGINT")
DELETES = DeleteRule(tombstones=True, columns=(("debezium_op", ("d",)),), keys=("id",))
MOST = 65_535
"""The most bytes of a method: https://docs.oracle.com/javase/specs/jvms/se17/html/jvms-4.html#jvms-4.9.1"""


def test_code_for_change_events_of_forty_columns_is_compiled(spark: SparkSession) -> None:
    records = spark.createDataFrame([], "topic STRING, partition INT, offset BIGINT, key BINARY, value BINARY")
    policy = RecordPolicy(on_error="dead_letter", on_null="keep", envelope="debezium", deletes=DELETES)
    with BatchOutcomes(spark) as outcomes:
        events = decoded(records.filter("rand() >= 0"), EVENT, key=Json(schema="id BIGINT"))
        rows: Any = outcomes.accepted(classify(events, policy, keep=["offset"]))
        gateway: Any = spark._jvm
        plan = rows._jdf.queryExecution().executedPlan()
        stages = gateway.org.apache.spark.sql.execution.debug.package.codegenStringSeq(plan)
        sizes = [stages.apply(number)._3().maxMethodCodeSize() for number in range(stages.size())]
    assert sizes
    # Spark reports the size -1 for code that does not compile.
    assert all(0 < size <= MOST for size in sizes), sizes
