"""SQL of panels: a query that only reads is accepted, and any other text is refused before Spark analyses it."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.spark import jvm

READS = (
    "SELECT 1",
    "SELECT zip, count(*) AS hits FROM hits GROUP BY zip HAVING count(*) > 1 ORDER BY hits DESC LIMIT 5 OFFSET 1",
    "WITH a AS (SELECT 1 AS x), b AS (SELECT * FROM a) SELECT * FROM b",
    "SELECT * FROM hits h JOIN zips z ON h.zip = z.zip LEFT JOIN LATERAL (SELECT h.zip) ON true",
    "SELECT DISTINCT zip FROM hits UNION ALL SELECT zip FROM zips EXCEPT SELECT '1' INTERSECT SELECT '2'",
    "SELECT * FROM VALUES (1, 'a'), (2, 'b') AS t(x, y)",
    "VALUES (1), (2)",
    "FROM hits SELECT zip",
    "TABLE hits",
    "SELECT (SELECT max(x) FROM t) AS m, EXISTS (SELECT 1 FROM t) FROM hits WHERE zip IN (SELECT zip FROM zips)",
    "SELECT sum(x) OVER (PARTITION BY y ORDER BY x) FROM t",
    "SELECT sum(x) OVER w FROM t WINDOW w AS (ORDER BY x)",
    "SELECT * FROM t LATERAL VIEW explode(xs) e AS x",
    "SELECT * FROM range(10)",
    "SELECT * FROM lake.web.hits.snapshots",
    "SELECT * FROM lake.web.hits VERSION AS OF 1",
    "SELECT /*+ BROADCAST(z) */ * FROM hits JOIN zips z USING (zip)",
    "SELECT * FROM hits PIVOT (count(*) FOR isp IN ('one', 'two'))",
    "SELECT * FROM hits TABLESAMPLE (10 PERCENT)",
    "FROM hits |> WHERE zip = '1' |> AGGREGATE count(*) GROUP BY isp",
    "SELECT 'DROP TABLE hits; SET x = 1' AS harmless -- DELETE FROM hits",
)
CHANGES = (
    "DROP TABLE hits",
    "DROP TABLE IDENTIFIER('hits')",
    "CREATE TABLE a.b.c AS SELECT 1",
    "CREATE OR REPLACE TEMP VIEW hits AS SELECT 1",
    "INSERT INTO hits SELECT 1",
    "WITH a AS (SELECT 1) INSERT INTO hits SELECT * FROM a",
    "FROM hits INSERT INTO other SELECT zip",
    "DELETE FROM hits",
    "UPDATE hits SET zip = '1'",
    "MERGE INTO hits USING zips ON false WHEN NOT MATCHED THEN INSERT *",
    "ALTER TABLE hits ADD COLUMN x INT",
    "TRUNCATE TABLE hits",
    "SET",
    "SET spark.hadoop.fs.s3a.secret.key",
    "RESET",
    "USE lake",
    "CALL lake.system.expire_snapshots('web.hits')",
    "CACHE TABLE hits",
    "REFRESH TABLE hits",
    "EXPLAIN SELECT 1",
    "DESCRIBE EXTENDED hits",
    "SHOW TABLES",
    "SHOW CREATE TABLE hits",
    "ADD JAR '/tmp/x.jar'",
    "EXECUTE IMMEDIATE 'DROP TABLE hits'",
    "BEGIN DROP TABLE hits; END",
    "DECLARE x = 1",
    "SELECT TRANSFORM (zip) USING 'cat' FROM hits",
    "INSERT OVERWRITE DIRECTORY '/tmp/x' USING csv SELECT 1",
    "SELECT reflect('java.lang.System', 'exit', 1)",
    "SELECT java_method('java.lang.System', 'getenv', 'AWS_SECRET_ACCESS_KEY')",
    "SELECT * FROM hits WHERE zip = (SELECT TRY_REFLECT('java.lang.System', 'getenv', 'X'))",
    "WITH a AS (SELECT builtin.reflect('java.lang.System', 'gc')) SELECT * FROM a",
    "SELECT sum(x) OVER w FROM t WINDOW w AS (ORDER BY reflect('java.lang.System', 'exit', 1))",
    "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'exit', 1)",
    "SELECT IDENTIFIER('reflect')('java.lang.System', 'exit', 1)",
)


def refusal(spark: SparkSession, sql: str) -> str | None:
    session: Any = spark
    found = jvm.java(spark).dashboard.ReadOnlyQuery.refusal(session._jsparkSession, sql)
    return None if found is None else str(found)


@pytest.mark.parametrize("sql", READS)
def test_a_read_only_query_is_accepted(spark: SparkSession, sql: str) -> None:
    assert refusal(spark, sql) is None


@pytest.mark.parametrize("sql", CHANGES)
def test_a_statement_that_does_more_than_read_is_refused(spark: SparkSession, sql: str) -> None:
    assert refusal(spark, sql)
