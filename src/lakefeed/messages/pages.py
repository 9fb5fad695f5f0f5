"""How messages and generated files name a page of the documentation.

They name the command that prints it, because who has only the wheel has no folder ``docs``. A test reads each call and
checks that there is such a page.
"""

from __future__ import annotations


def page_command(topic: str) -> str:
    """Return the command that prints a page; its topic is the name of the file without ``.md``."""
    return f"lakefeed docs {topic}"


def names_page(text: str) -> bool:
    """Check that a message names a page already."""
    return "lakefeed docs " in text


def page_of_setting(key: str) -> str | None:
    """Return the page of a setting, such as ``sinks.copy.jdbc.url``; None for one that many pages show."""
    parts = key.split(".")
    if parts[0] == "sinks":
        parts[:2] = ["sink"]
    return _longest(parts, PAGE_OF_SETTING)


def page_of_module(module: str) -> str | None:
    """Return the page about the work of a module of lakefeed; None for one with work of many kinds."""
    return _longest(module.split(".")[1:], PAGE_OF_MODULE)


def _longest(parts: list[str], pages: dict[str, str]) -> str | None:
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((pages[prefix] for prefix in prefixes if prefix in pages), None)


PAGE_OF_SETTING = {
    "budget": "s3-requests",
    "catalogs": "catalogs",
    "checkpoint": "checkpoint",
    "dashboard": "dashboard",
    "dashboard.behind_proxy": "secure-the-dashboard",
    "dashboard.host": "secure-the-dashboard",
    "dashboard.panels": "query-panels",
    "dashboard.tls": "secure-the-dashboard",
    "dashboard.tokens": "secure-the-dashboard",
    "dashboard.users": "secure-the-dashboard",
    "dead_letters": "dead-letters",
    "dead_letters.topic": "dead-letter-topics",
    "decode": "decode",
    "decode.avro": "decode-avro",
    "decode.json": "decode-json",
    "decode.json_schema": "decode-json",
    "decode.protobuf": "decode-protobuf",
    "deploy": "deploy-on-kubernetes",
    "expect": "dead-letters",
    "fast_path": "fast-path",
    "lineage": "lineage",
    "metrics": "metrics",
    "notify": "alerts",
    "runs": "runs",
    "s3": "object-stores",
    "schema": "schema-evolution",
    "sink": "sinks",
    "sink.elasticsearch": "elasticsearch",
    "sink.iceberg": "layout",
    "sink.iceberg.delete": "upserts",
    "sink.iceberg.order_by": "upserts",
    "sink.iceberg.publish": "write-audit-publish",
    "sink.iceberg.branch": "write-audit-publish",
    "sink.iceberg.format_version": "format-version-3",
    "sink.iceberg.history": "upserts",
    "sink.iceberg.keys": "upserts",
    "sink.iceberg.mode": "upserts",
    "sink.iceberg.on_delete": "upserts",
    "sink.iceberg.table": "catalogs",
    "sink.jdbc": "jdbc",
    "sink.kafka": "kafka-sink",
    "source": "sources",
    "source.kafka.start": "starts",
    "spark_ui": "spark-ui",
    "tables": "many-topics",
    "tests": "test-a-pipeline",
    "tls": "secure-connections",
    "transform": "transforms",
    "trigger": "run",
    "upkeep": "upkeep",
}
"""The page of each block of a pipeline file, or of one of its settings."""

PAGE_OF_MODULE = {
    "bench": "bench",
    "cases": "test-a-pipeline",
    "cli.check": "check",
    "cli.control": "operate",
    "cli.dashboard": "secure-the-dashboard",
    "cli.dead_letters": "dead-letters",
    "cli.examples": "examples",
    "cli.image": "container-image",
    "cli.init": "check",
    "cli.lag": "lag",
    "cli.notify": "alerts",
    "cli.offsets": "offsets",
    "cli.produce": "produce",
    "cli.publish": "write-audit-publish",
    "cli.read": "read-and-backfill",
    "cli.runs": "runs",
    "cli.schema": "schema-evolution",
    "cli.tables": "upkeep",
    "cli.topics": "topics",
    "cli.verify": "verify",
    "clients.iceberg": "catalogs",
    "clients.iceberg_rest": "catalogs",
    "clients.kafka.msk_iam": "secure-connections",
    "clients.s3": "object-stores",
    "clients.spark.cluster": "deploy-with-spark-submit",
    "clients.spark.jars": "jars",
    "clients.spark.python_files": "deploy-with-spark-submit",
    "clients.spark.storage": "object-stores",
    "config.kafka_login": "secure-connections",
    "config.tls": "secure-connections",
    "config.trust": "secure-connections",
    "dashboard": "dashboard",
    "dataframes": "python",
    "local": "local-stack",
    "maintenance": "upkeep",
    "monitor.control": "operate",
    "monitor.metrics": "metrics",
    "monitor.notify": "alerts",
    "monitor.runs": "runs",
    "operations.adopt": "adopt",
    "operations.backfill": "read-and-backfill",
    "operations.compare_schemas": "schema-rules",
    "operations.control": "operate",
    "operations.deploy": "deploy-on-kubernetes",
    "operations.examples": "examples",
    "operations.image": "container-image",
    "operations.lag": "lag",
    "operations.lineage": "lineage",
    "operations.metrics": "metrics",
    "operations.plan": "plan",
    "operations.produce": "produce",
    "operations.publish": "write-audit-publish",
    "operations.read": "read-and-backfill",
    "operations.replay": "dead-letters",
    "operations.rewind": "offsets",
    "operations.runs": "runs",
    "operations.submit": "deploy-with-spark-submit",
    "operations.topic_profile": "topics",
    "operations.topic_records": "topics",
    "operations.verify": "verify",
    "quickstart": "quickstart",
    "records.decode": "decode",
    "records.decode.avro_schema": "decode-avro",
    "records.decode.changes": "upserts",
    "records.decode.json_schema": "decode-json",
    "records.decode.json_schema_document": "decode-json",
    "records.decode.registry": "schema-registry",
    "records.encode": "produce",
    "records.schema": "schema-rules",
    "records.sources": "sources",
    "records.transform": "transforms",
    "sinks": "sinks",
    "sinks.dead_letters": "dead-letters",
    "sinks.elasticsearch": "elasticsearch",
    "sinks.iceberg": "layout",
    "sinks.iceberg.audit": "write-audit-publish",
    "sinks.iceberg.branch": "write-audit-publish",
    "sinks.iceberg.publish": "write-audit-publish",
    "sinks.iceberg.upsert": "upserts",
    "sinks.jdbc": "jdbc",
    "sinks.kafka": "kafka-sink",
    "testing": "test-a-pipeline",
    "topic": "topics",
}
"""The page about the work of a module, which errors that the module raises name."""
