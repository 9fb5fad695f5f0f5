"""The block ``catalogs`` becomes properties of Iceberg in Spark and in Python."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from lakefeed.clients.iceberg.catalogs import CatalogDatabase
from lakefeed.clients.iceberg.reader import _catalog_properties
from lakefeed.clients.spark.session import settings
from lakefeed.config.connections import S3, Catalog, Connections
from lakefeed.errors import ConfigError

WAREHOUSE = "s3://lake/warehouse"
SECRET = "hunter2hunter2"


def declared(**given: Any) -> Catalog:
    return Catalog.model_validate(given)


def in_spark(catalog: Catalog) -> dict[str, str]:
    """Return the catalog's settings in a Spark session."""
    connections = Connections(s3=S3(region="eu-west-1"), catalogs={"c": catalog})
    prefix = "spark.sql.catalog.c."
    found = settings(connections=connections)
    assert SECRET not in json.dumps(found)
    assert found["spark.sql.catalog.c"] == "io.lakefeed.commit.FeedCatalog"
    return {key.removeprefix(prefix): value for key, value in found.items() if key.startswith(prefix)}


def test_a_catalog_in_postgresql_has_its_properties() -> None:
    catalog = declared(
        uri="jdbc:postgresql://db:5433/lake?sslmode=require", warehouse=WAREHOUSE, username="me", password=SECRET
    )
    spark = in_spark(catalog)
    uri = "jdbc:postgresql://db:5433/lake?sslmode=require"
    assert {"type": "jdbc", "uri": uri, "jdbc.user": "me", "jdbc.schema-version": "V1"}.items() <= spark.items()
    assert catalog.secrets() == {"jdbc.password": SecretStr(SECRET)}
    read = _catalog_properties(catalog, region="eu-west-1")
    assert read["uri"] == f"postgresql+psycopg://me:{SECRET}@db:5433/lake?sslmode=require"


@pytest.mark.parametrize("uri", ["jdbc:postgresql:lake", "jdbc:postgresql://db", "jdbc:postgresql://db:x/lake"])
def test_a_uri_without_host_or_database_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match="not the JDBC URL of a PostgreSQL"):
        CatalogDatabase.of(uri)


def test_a_rest_catalog_has_a_login_and_vended_credentials() -> None:
    catalog = declared(
        type="rest",
        uri="https://catalog/api",
        warehouse="production",
        credential=f"id:{SECRET}",
        scope="PRINCIPAL_ROLE:ALL",
        oauth2_server_uri="https://login/token",
        vended_credentials=True,
    )
    spark = in_spark(catalog)
    expected = {
        "type": "rest",
        "uri": "https://catalog/api",
        "warehouse": "production",
        "scope": "PRINCIPAL_ROLE:ALL",
        "oauth2-server-uri": "https://login/token",
        "token-exchange-enabled": "false",
        "rest.client.connection-timeout-ms": "10000",
        "rest.client.socket-timeout-ms": "120000",
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
    }
    assert expected.items() <= spark.items()
    assert catalog.secrets() == {"credential": SecretStr(f"id:{SECRET}")}
    # pyiceberg's properties have the names of those of Iceberg in Spark.
    assert _catalog_properties(catalog, region="eu-west-1") == {**expected, "credential": f"id:{SECRET}"}


def test_a_hive_catalog_has_its_properties() -> None:
    catalog = declared(
        type="hive", uri="thrift://one:9083,thrift://two:9083", warehouse=WAREHOUSE, properties={"clients": "4"}
    )
    spark = in_spark(catalog)
    expected = {"type": "hive", "uri": "thrift://one:9083,thrift://two:9083", "warehouse": WAREHOUSE, "clients": "4"}
    assert expected.items() <= spark.items()
    assert spark["io-impl"] == "io.lakefeed.sink.TableFileIO"


def test_a_glue_catalog_adds_its_jar() -> None:
    catalog = declared(type="glue", warehouse=WAREHOUSE, properties={"glue.id": "123456789012"})
    spark = in_spark(catalog)
    expected = {"type": "glue", "warehouse": WAREHOUSE, "glue.id": "123456789012", "client.region": "eu-west-1"}
    assert expected.items() <= spark.items()
    assert "uri" not in spark
    assert _catalog_properties(catalog, region="eu-west-1")["glue.region"] == "eu-west-1"
    with_glue = settings(connections=Connections(catalogs={"c": catalog}))["spark.driver.extraClassPath"]
    assert "awssdk/glue" in with_glue
    assert "awssdk/glue" not in settings(connections=Connections())["spark.driver.extraClassPath"]


def test_properties_whose_names_look_like_secrets_are_secret() -> None:
    properties = {"rest.auth.basic.password": SECRET, "header.Authorization": SECRET, "rest.auth.type": "basic"}
    catalog = declared(type="rest", uri="http://h", properties=properties)
    assert in_spark(catalog)["rest.auth.type"] == "basic"
    assert set(catalog.secrets()) == {"rest.auth.basic.password", "header.Authorization"}


@pytest.mark.parametrize("uri", ["jdbc:sqlite:/c.db", "jdbc:sqlite:file:/c.db", "jdbc:sqlite:/c.db?busy_timeout=3"])
def test_spark_and_python_open_the_same_sqlite_file(uri: str) -> None:
    catalog = declared(uri=uri, warehouse=WAREHOUSE)
    assert in_spark(catalog)["uri"] == uri
    assert catalog.sqlite_file == Path("/c.db")
    assert _catalog_properties(catalog, region="eu-west-1")["uri"] == "sqlite:////c.db"


@pytest.mark.parametrize(
    ("given", "because"),
    [
        ({"type": "hadoop", "warehouse": WAREHOUSE}, "at the same time .apache/iceberg#970"),
        (
            {
                "uri": "jdbc:sqlite:/c.db",
                "warehouse": WAREHOUSE,
                "properties": {"catalog-impl": "org.apache.iceberg.hadoop.HadoopCatalog"},
            },
            "it loses one of two commits",
        ),
        (
            {"uri": "jdbc:sqlite:/c.db", "warehouse": WAREHOUSE, "properties": {"type": "rest"}},
            "repeats the setting 'type'",
        ),
        ({"type": "hive", "uri": "http://h", "warehouse": WAREHOUSE}, "starts with thrift://"),
        ({"type": "hive", "uri": "thrift://h"}, "a hive catalog requires a warehouse"),
        ({"type": "glue", "uri": "http://h", "warehouse": WAREHOUSE}, "a glue catalog has no uri"),
        ({"type": "rest"}, "the uri of a rest catalog starts with http"),
        ({"type": "rest", "uri": "http://h", "password": SECRET}, "password is for a jdbc catalog, not for rest"),
        ({"uri": "jdbc:sqlite:/c.db", "warehouse": WAREHOUSE, "token": SECRET}, "token is for a rest catalog"),
        ({"type": "rest", "uri": "http://h", "token": SECRET, "credential": SECRET}, "give one"),
        ({"type": "rest", "uri": "http://h", "oauth2_server_uri": f"http://a:{SECRET}@h"}, "do not belong in a URL"),
    ],
)
def test_a_contradiction_in_a_catalog_is_refused(given: dict[str, Any], because: str) -> None:
    with pytest.raises(ValidationError, match=because) as raised:
        declared(**given)
    assert SECRET not in str(raised.value)
