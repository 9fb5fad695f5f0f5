"""The expected results of the examples with the records in ``examples/data``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Example:
    """A pipeline file of ``examples/``, and its expected result.

    Attributes:
        file: the path below ``examples/``.
        result: SQL that selects the result, in the database if ``server`` names one, otherwise in Spark; None if the
            result is the table that the run prints.
        expected: the result's rows, as text.
        topic: the topic whose records the view ``records`` has.
        columns: the records' columns, if they are JSON instead of Avro.
        index: the index whose documents the view ``documents`` has.
        server: the kind of server for ``DATABASE_URL`` or ``ELASTICSEARCH_URL``.
        prepared: statements to run in the database first.
        after: an example to run first.
        is_quick: ``make test-full`` runs the example too, not only ``make test-all``.
        photographed: the column of the first panel whose sum must grow while ``make examples`` photographs the
            dashboard.
    """

    file: str
    result: str | None
    expected: tuple[tuple[str, ...], ...]
    topic: str | None = None
    columns: str | None = None
    index: str | None = None
    server: str | None = None
    prepared: tuple[str, ...] = ()
    after: str | None = None
    is_quick: bool = False
    photographed: str | None = None


HITS = (
    ("11:57", "94105", "one", "2"),
    ("12:02", "10001", "one", "1"),
    ("12:02", "94105", "one", "2"),
    ("12:02", "94105", "two", "1"),
    ("12:07", "10001", "one", "1"),
    ("12:07", "94105", "two", "1"),
)
"""Hits by the start of the window, zip code and provider."""

EXAMPLES = (
    Example(
        file="word_count/pipeline.yaml",
        result=None,
        expected=(("the", "3"), ("dog", "1"), ("end", "1"), ("fox", "1"), ("lazy", "1"), ("quick", "1")),
        is_quick=True,
    ),
    Example(
        file="isp_hits/pipeline.yaml",
        result="SELECT date_format(begins, 'HH:mm'), zip, isp, hits FROM lake.web.isp_hits ORDER BY begins, zip, isp",
        expected=HITS,
        is_quick=True,
    ),
    Example(
        file="isp_hits_dashboard/pipeline.yaml",
        result="SELECT zip, city, hits FROM hits_by_zip ORDER BY hits DESC, zip",
        expected=(
            ("98101", "Seattle", "35"),
            ("90012", "Los Angeles", "33"),
            ("94105", "San Francisco", "32"),
            ("80202", "Denver", "29"),
            ("30303", "Atlanta", "17"),
            ("78701", "Austin", "17"),
            ("33130", "Miami", "15"),
            ("60601", "Chicago", "13"),
            ("10001", "New York", "6"),
            ("02108", "Boston", "3"),
        ),
        photographed="hits",
    ),
    Example(
        file="isp_hits/by_zip_and_day.yaml",
        result="SELECT zip, day, count(*) FROM default.isp_hits GROUP BY zip, day ORDER BY zip",
        expected=(("10001", "2024-01-01", "1"), ("94105", "2024-01-01", "3")),
        after="isp_hits/pipeline.yaml",
        is_quick=True,
    ),
    Example(
        file="isp_hits/to_kafka_update.yaml",
        topic="hits-by-zip",
        result="SELECT date_format(begins, 'HH:mm'), zip, isp, hits FROM records ORDER BY begins, zip, isp",
        expected=HITS,
        after="isp_hits/pipeline.yaml",
    ),
    Example(
        file="isp_hits/to_kafka_complete.yaml",
        topic="hits-of-all-time",
        columns="zip STRING, hits BIGINT",
        result="SELECT zip, hits FROM records ORDER BY zip",
        expected=(("10001", "1"), ("94105", "3")),
        after="isp_hits/pipeline.yaml",
    ),
    Example(
        file="isp_hits/to_mariadb.yaml",
        result="SELECT zip, hits FROM hits ORDER BY zip",
        expected=(("10001", "1"), ("94105", "3")),
        server="mariadb",
        after="isp_hits/pipeline.yaml",
    ),
    Example(
        file="anomaly/pipeline.yaml",
        # The second run finds this anomaly, because that run knows the values of the first run.
        result="SELECT sensor, date_format(at, 'HH:mm'), value, mean FROM lake.plant.anomalies",
        expected=(("boiler", "12:11", "24.0", "20.018"),),
    ),
    Example(
        file="kafka_to_mariadb/pipeline.yaml",
        result="SELECT id, name, city, balance, tags FROM customers ORDER BY id",
        expected=(("1", "Ann", "Geneva", "12.00", '["new","vip"]'), ("3", "Cleo", "Basel", "3.20", "None")),
        server="mariadb",
    ),
    Example(
        file="kafka_to_delta/pipeline.yaml",
        result="SELECT user, page, date_format(at, 'HH:mm') FROM parquet.`s3a://lake/tables/clicks` ORDER BY at",
        expected=(
            ("ann", "shoes", "12:00"),
            ("ben", "shoes", "12:01"),
            ("dan", "hats", "12:02"),
            ("ben", "hats", "12:03"),
        ),
    ),
    Example(
        file="orchestrators/pipeline.yaml",
        result="SELECT order_id, customer FROM lake.shop.purchases ORDER BY order_id",
        expected=(("1", "ann"), ("2", "ben"), ("4", "ann")),
    ),
    Example(
        file="taxi/pipeline.yaml",
        result="SELECT count(*), count(DISTINCT kafka_key) FROM lake.nyc.trips",
        expected=(("1000", "1000"),),
    ),
    Example(
        file="upserts/pipeline.yaml",
        result="SELECT id, city FROM lake.shop.customers ORDER BY id",
        expected=(("1", "Geneva"), ("3", "Basel")),
    ),
    Example(
        file="personalisation/users.yaml",
        result="SELECT * FROM lake.shop.users ORDER BY user",
        expected=(("ann", "new"), ("ben", "loyal"), ("cleo", "loyal")),
    ),
    Example(
        file="personalisation/pipeline.yaml",
        result="SELECT date_format(at, 'HH:mm'), user, page, segment, show_offer FROM lake.shop.offers ORDER BY at",
        expected=(
            ("12:00", "ann", "shoes", "new", "False"),
            ("12:01", "ben", "shoes", "loyal", "True"),
            ("12:02", "dan", "hats", "stranger", "True"),
            ("12:03", "ben", "hats", "loyal", "True"),
        ),
        after="personalisation/users.yaml",
    ),
    Example(
        file="mllib/pipeline.yaml",
        result="SELECT id, price FROM lake.houses.offers ORDER BY id",
        expected=(("1", "80000"), ("2", "130000")),
    ),
    Example(
        file="ml_stream/learn.yaml",
        # Version 1 learns from six sales (1,000 per square metre, 5,000 per room), version 2 from four more expensive
        # sales.
        result=(
            "SELECT version, rows, transform(weights, each -> bigint(round(each))) FROM lake.homes.model "
            "ORDER BY version"
        ),
        expected=(("1", "6", "[0, 1000, 5000]"), ("2", "10", "[-8136, 1305, 1408]")),
    ),
    Example(
        file="ml_stream/score.yaml",
        result="SELECT id, price, model_version FROM lake.homes.offers ORDER BY id",
        expected=(("1", "86019", "2"), ("2", "141029", "2")),
        after="ml_stream/learn.yaml",
    ),
    Example(
        file="ml_stream/features.yaml",
        result=(
            "SELECT date_format(begins, 'HH:mm'), town, sales, per_square_metre FROM lake.homes.town_prices "
            "ORDER BY begins, town"
        ),
        expected=(
            ("12:00", "Bern", "2", "1175.0"),
            ("12:00", "Geneva", "2", "1197.92"),
            ("13:00", "Bern", "1", "1083.33"),
            ("13:00", "Geneva", "1", "1222.22"),
            ("14:00", "Bern", "1", "1342.86"),
            ("14:00", "Geneva", "1", "1381.82"),
            ("15:00", "Bern", "1", "1325.0"),
            ("15:00", "Geneva", "1", "1392.31"),
        ),
        after="ml_stream/learn.yaml",
    ),
    Example(
        file="streaming_etl/pipeline.yaml",
        result="SELECT hour(hour), shop, orders, revenue, day FROM parquet.`s3a://lake/revenue` ORDER BY shop",
        expected=(("12", "Bern", "1", "7.00", "2024-01-01"), ("12", "Zurich", "2", "15.00", "2024-01-01")),
    ),
    Example(
        file="compacted_to_postgresql/pipeline.yaml",
        result="SELECT id, name, city, balance, tags FROM profiles ORDER BY id",
        expected=(("1", "Ann", "Geneva", "12.00", "['new', 'vip']"), ("3", "Cleo", "Basel", "3.20", "None")),
        server="postgresql",
    ),
    Example(
        file="kafka_connect/kafka_to_jdbc.yaml",
        result="SELECT id, shop, amount FROM payments ORDER BY id, at",
        expected=(
            ("a1", " Zurich ", "12.50"),
            ("a1", " Zurich ", "12.50"),
            ("a2", "BERN", "7.00"),
            ("a3", "zurich", "oops"),
            ("a4", "zurich", "2.50"),
            ("a5", "bern", "1.00"),
        ),
        server="postgresql",
    ),
    Example(
        file="kafka_connect/kafka_to_elasticsearch.yaml",
        index="people",
        result="SELECT _id, name, city, balance, tags FROM documents ORDER BY _id",
        expected=(("1", "Ann", "Geneva", "12.0", "['new', 'vip']"), ("3", "Cleo", "Basel", "3.2", "None")),
        server="opensearch",
    ),
    Example(
        file="kafka_connect/kafka_to_files.yaml",
        result="SELECT day, zip, count(*) FROM parquet.`s3a://lake/page_hits` GROUP BY day, zip ORDER BY zip",
        expected=(("2024-01-01", "10001", "1"), ("2024-01-01", "94105", "3")),
    ),
    Example(
        file="kafka_connect/s3_to_kafka.yaml",
        topic="hits-of-files",
        columns="zip STRING, isp STRING",
        result="SELECT CAST(kafka_key AS STRING) AS key, count(*), max(isp) FROM records GROUP BY key ORDER BY key",
        expected=(("10001", "1", "one"), ("94105", "3", "two")),
    ),
    Example(
        file="kafka_connect/jdbc_to_kafka.yaml",
        topic="customers-of-table",
        columns="id INT, name STRING",
        result="SELECT CAST(kafka_key AS STRING) AS key, name FROM records ORDER BY key",
        expected=(("1", "Ann"), ("2", "Ben")),
        server="postgresql",
        prepared=(
            "CREATE TABLE customers (id INT PRIMARY KEY, name TEXT, updated_at TIMESTAMPTZ)",
            "INSERT INTO customers VALUES (1, 'Ann', '2024-01-01'), (2, 'Ben', '2024-01-02')",
        ),
    ),
)
