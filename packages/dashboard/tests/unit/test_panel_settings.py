"""Settings of query panels and tariffs in a pipeline file."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from lakefeed_dashboard.settings import Dashboard, QueryPanel, QueryPanels, Tariff


def panel(**settings: Any) -> QueryPanel:
    return QueryPanel.model_validate({"name": "hits", **settings})


def test_a_panel_reads_the_columns_that_its_chart_needs() -> None:
    assert panel(view="v", chart="bar", x="zip", y="hits").shown == ["zip", "hits"]
    assert panel(view="v", chart="line", x="at", y=["a", "b"]).shown == ["at", "a", "b"]
    assert panel(table="a.b.c", chart="map", label="zip", lat="lat", lon="lon").shown == ["zip", "lat", "lon"]
    assert panel(view="v").shown == []
    assert panel(view="v", columns=["b", "a"]).shown == ["b", "a"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "  -- comment: DROP TABLE x\n select 1",
        "/* DELETE */ WITH a AS (SELECT 1) SELECT * FROM a;",
        "(SELECT 1) UNION (SELECT 2)",
        "SELECT 'INSERT INTO x' AS text",
        "FROM hits |> WHERE true",
        "VALUES (1)",
    ],
)
def test_a_panel_accepts_a_query(sql: str) -> None:
    assert panel(sql=sql).sql == sql


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sql": "DROP TABLE lake.web.hits"}, "write a SELECT, not DROP"),
        ({"sql": "SET spark.hadoop.fs.s3a.secret.key"}, "not SET"),
        ({"sql": "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a"}, "not INSERT INTO"),
        ({"sql": "FROM a INSERT OVERWRITE t SELECT *"}, "not INSERT OVERWRITE"),
        ({"sql": "EXECUTE IMMEDIATE 'DROP TABLE x'"}, "not EXECUTE"),
        ({"sql": "SELECT 1; DROP TABLE x"}, "it has two statements"),
        ({"sql": "SELECT '${spark.x}'"}, "may be a secret"),
        ({"sql": "-- nothing"}, "it is empty"),
        ({}, "exactly one of view, table and sql"),
        ({"view": "v", "sql": "SELECT 1"}, "has view and sql"),
        ({"view": "a b"}, "letters, digits"),
        ({"view": "v; DROP"}, "letters, digits"),
        ({"table": "hits"}, "catalog.namespace.table"),
        ({"view": "v", "chart": "bar", "x": "zip"}, "chart: bar needs x and y"),
        ({"view": "v", "chart": "map", "lat": "a"}, "chart: map needs lat and lon"),
        ({"view": "v", "chart": "pie"}, "'bar', 'line', 'table' or 'map'"),
        ({"table": "a.b.c", "every": "5 seconds"}, "a query of a table every 5 seconds would cost too much"),
        ({"sql": "SELECT 1", "every": "1 second"}, "every 1 second would cost too much"),
        ({"view": "v", "time_limit": "1 hour"}, "10 minutes at most"),
        ({"view": "v", "limit": 100_000}, "less than or equal to 10000"),
        ({"sql": "SELECT 1", "columns": ["a"]}, "not for sql"),
        ({"view": "v", "name": "<script>"}, "a panel's name has letters"),
    ],
)
def test_a_mistake_in_a_panel_is_reported(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        panel(**settings)
    assert message in str(refused.value)


def test_two_panels_cannot_have_the_same_name() -> None:
    with pytest.raises(ValidationError, match="another panel 'a'"):
        TypeAdapter(QueryPanels).validate_python([{"name": "a", "view": "v"}, {"name": "a", "view": "w"}])


def test_a_tariff_is_a_preset_or_prices() -> None:
    preset = Tariff.of("aws-us-east-1")
    assert preset is not None
    assert preset.price(writes=1_000_000, reads=1_000_000) == pytest.approx(5.4)
    own = Tariff.model_validate({"currency": "CHF", "per_1000_writes": 1, "per_1000_reads": 0})
    assert Tariff.of(own) is own
    assert own.price(writes=500, reads=500) == 0.5
    with pytest.raises(ValidationError, match="'aws-us-east-1', 'aws-eu-central-1' or 'cloudflare-r2'"):
        Dashboard.model_validate({"tariff": "aws"})
    with pytest.raises(ValidationError, match="three letters"):
        Tariff.model_validate({"currency": "$", "per_1000_writes": 1, "per_1000_reads": 0})
