"""``check --connect`` on catalogs in files, HTTP servers in threads, and servers that do not answer."""

import json
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lakefeed.config.connections import Catalog, Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError, ResourceMissing, Unreachable
from lakefeed.operations.preflight.connect import (
    _catalog,
    _change_events,
    _keeps_schema,
    _refused_columns,
    _server,
    _sqlite,
    _subjects,
    _topics,
)
from tests.support.pipeline_text import feed_config
from tests.support.registry_in_a_thread import RegistryInAThread

WAREHOUSE = "s3://lake/warehouse"


def test_new_empty_and_existing_sqlite_catalogs_are_accepted(tmp_path: Path) -> None:
    _sqlite(tmp_path / "new.db")
    (tmp_path / "empty.db").touch()
    _sqlite(tmp_path / "empty.db")
    with sqlite3.connect(tmp_path / "old.db") as database:
        database.execute("CREATE TABLE t (a INT)")
    database.close()
    _sqlite(tmp_path / "old.db")


def test_a_sqlite_catalog_in_a_missing_folder_or_in_a_text_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResourceMissing, match="folder"):
        _sqlite(tmp_path / "no" / "catalog.db")
    (tmp_path / "notes.txt").write_text("these are only notes, not a database")
    with pytest.raises(ConfigError, match="not a SQLite database"):
        _sqlite(tmp_path / "notes.txt")


def test_a_database_server_that_does_not_answer_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="does not answer"):
        _server(Catalog(type="jdbc", uri="jdbc:postgresql://127.0.0.1:1/db", warehouse=WAREHOUSE))


def test_a_java_key_store_is_only_a_warning() -> None:
    """Spark's Java client can read the key store, but librdkafka, the client of the check, cannot."""
    options = {"kafka.ssl.truststore.location": "/etc/trust.jks"}
    (problem,) = _topics(KafkaSource(bootstrap_servers="127.0.0.1:1", topics=["trips"], options=options))
    assert problem.severity == "warning"
    assert "kafka.ssl.truststore.location" in problem.what


def test_a_table_in_an_undeclared_catalog_is_a_mistake() -> None:
    (check,) = _catalog(feed_config(), Connections())
    assert [(each.key, each.error) for each in check()] == [("sink.iceberg.table", ConfigError)]


@pytest.fixture
def registry() -> Iterator[RegistryInAThread]:
    with RegistryInAThread() as running:
        yield running


def register(registry: RegistryInAThread, schema: Any, *, kind: str = "AVRO") -> None:
    found = {"id": 1, "subject": "hits-value", "version": 1, "schemaType": kind}
    registry.versions["hits-value", 1] = {**found, "schema": schema if isinstance(schema, str) else json.dumps(schema)}


def of_avro(avro: dict[str, Any], **decode: Any) -> PipelineConfig:
    return decoding({"avro": avro, **decode})


def decoding(decode: dict[str, Any]) -> PipelineConfig:
    sink = {"iceberg": {"table": "lake.a.b", "partition_by": ["days(id)"]}}
    return feed_config(decode=decode, sink=sink, checkpoint=None, trigger="1 second")


def test_an_unreadable_table_is_a_warning_besides_the_error_for_an_unusable_schema(
    tmp_path: Path, registry: RegistryInAThread
) -> None:
    register(registry, "int")
    database = tmp_path / "catalog.db"
    database.write_text("these are only notes, not a database")
    catalog = Catalog(type="jdbc", uri=f"jdbc:sqlite:{database}", warehouse=WAREHOUSE)
    config = of_avro({"registry": registry.url})
    kept = partial(_keeps_schema, config, Connections(catalogs={"lake": catalog}))
    [check] = _subjects(config.decode, "decode", "value", "hits", kept)
    unusable, unread = check()
    assert (unusable.severity, unread.severity) == ("error", "warning")
    assert "cannot be used" in unusable.what
    assert "the records: the catalog's database cannot be used: file is not a database" in unread.what


def test_the_check_of_change_events_ignores_a_subject_with_another_kind_of_schema(registry: RegistryInAThread) -> None:
    register(registry, 'syntax = "proto3"; message A {}', kind="PROTOBUF")
    config = of_avro({"registry": registry.url}, envelope="debezium")
    assert _change_events(config) == []
    texts = [{"name": name, "type": "string"} for name in ("after", "op")]
    register(registry, {"type": "record", "name": "A", "fields": texts})
    [found] = _change_events(config)
    assert (found.key, found.severity, "MongoDB" in found.what) == ("decode.envelope", "error", True)


def test_columns_of_an_avro_schema_that_iceberg_refuses_are_reported(
    tmp_path: Path, registry: RegistryInAThread
) -> None:
    """If the registry's newest version is the problem, it is a warning, because records may use older versions."""
    fields = [{"name": "id", "type": "long"}, {"name": "_pos", "type": "int"}]
    schema = {"type": "record", "name": "A", "fields": fields}
    register(registry, schema)
    (tmp_path / "a.avsc").write_text(json.dumps(schema))
    avro: dict[str, Any]
    for avro, severity in (({"schema_file": tmp_path / "a.avsc"}, "error"), ({"registry": registry.url}, "warning")):
        found = _refused_columns(of_avro(avro))
        assert [(each.key, each.severity) for each in found] == [
            ("decode.avro", severity),
            ("sink.iceberg.partition_by.0", severity),
        ]
        assert [each.what for each in found] == [
            "the name _pos is reserved for a metadata column of Iceberg",
            "days(id) cannot partition a column of type LONG",
        ]
