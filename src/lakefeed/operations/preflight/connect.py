"""Check without Spark that a pipeline can use its broker, topics, registry, buckets, catalog and tables.

``lakefeed check --connect`` and the start of ``lakefeed run`` use the same checks. The checks run concurrently with
timeouts of a few seconds, so even if no server answers, all problems are reported soon.
"""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from lakefeed.clients.http import TIMEOUT_SECONDS
from lakefeed.clients.iceberg import catalogs
from lakefeed.clients.s3 import Keys, configured_keys, require_bucket
from lakefeed.clients.spark.errors import METADATA_GONE
from lakefeed.config import trust
from lakefeed.config.addresses import is_local, local_folder
from lakefeed.config.checks import decoded_columns, missing_columns, refusals
from lakefeed.config.connections import Catalog, Connections, Registry
from lakefeed.config.decoding import Encoded
from lakefeed.config.keyed import DELETED
from lakefeed.config.models import PipelineConfig
from lakefeed.config.places import stored_at
from lakefeed.config.problem import Problem
from lakefeed.config.sources import KafkaSource
from lakefeed.config.topic_tables import config_of
from lakefeed.config.trust import JavaOnly
from lakefeed.config.upserts import kept_metadata
from lakefeed.config.values import catalog_of
from lakefeed.errors import AccessDenied, ConfigError, LakefeedError, MissingExtra, ResourceMissing, Unreachable
from lakefeed.lazy import StructType
from lakefeed.operations.preflight.analysis import encrypted_fields
from lakefeed.sinks.definition import Check, checked
from lakefeed.sinks.factory import sinks_of
from lakefeed.sinks.iceberg.layout import require_dead_letters, require_own_types, require_rows

METADATA_TYPES = {"topic": "string", "partition": "integer", "offset": "long", "timestamp": "timestamp"}
METADATA_TYPES |= {"key": "binary", "sequence_number": "string"}


def preflight(config: PipelineConfig, *, connections: Connections | None = None, tables: bool = False) -> list[Problem]:
    """Return the problems with a pipeline's servers, folders and tables; if all are warnings, a run can begin.

    Args:
        connections: store and catalogs. Default: those of the pipeline and of this process's environment.
        tables: also check the tables and the start of a new feed, which a run checks itself.
    """
    if connections is None:
        connections = config.connections(os.environ)
    try:
        trust.current()
    except ConfigError as error:
        # Every connection would fail with this error, so do not check any.
        return [Problem.of(error, key="tls")]
    checks = [*_kafka(config, connections, start=tables), *_places(config, connections), *_catalog(config, connections)]
    checks += [check for sink in sinks_of(config, connections) for check in sink.preflight(lambda: _rows(config))]
    checks += [partial(each, config) for each in (_missing_columns, _refused_columns, _change_events)]
    with ThreadPoolExecutor(max_workers=len(checks), thread_name_prefix="preflight") as pool:
        problems = [problem for found in pool.map(lambda check: check(), checks) for problem in found]
    # If the catalog has a problem, do not open its tables: that would only report the same problem again.
    if tables and not any(problem.key.startswith("catalogs.") for problem in problems):
        problems += _table_problems(config, connections)
    waiting = tuple(f"sinks.{name}." for name, sink in config.sinks.items() if sink.can_lag)
    return [
        replace(problem, severity="warning", hint="a running feed continues without this sink, which catches up later")
        if problem.key.startswith(waiting) and issubclass(problem.error, Unreachable)
        else problem
        for problem in problems
    ]


def _kafka(config: PipelineConfig, connections: Connections, *, start: bool) -> list[Check]:
    if (source := config.source.kafka) is None:
        return []
    # With many tables, a topic without a schema stops no other topic, so its schema may be registered later.
    topic = None if config.has_many_tables else next(iter(source.topics or ()), None)
    checks: list[Check] = [partial(_topics, source, may_come=config.has_many_tables)]
    if start:
        checks.append(partial(_start, source))
    checks += _subjects(config.decode, "decode", "value", topic, partial(_keeps_schema, config, connections))
    if config.decode.key is not None:
        checks += _subjects(config.decode.key, "decode.key", "key", topic)
    return checks


def _topics(source: KafkaSource, *, may_come: bool = False) -> list[Problem]:
    from lakefeed.clients.kafka.librdkafka import missing_topic
    from lakefeed.clients.kafka.topics import Topics

    where, key = source.bootstrap_servers, "source.kafka.bootstrap_servers"
    try:
        existing = Topics(where, options=source.client_options).list()
    except ConfigError as error:
        # For example, a Java key store: Spark's Kafka client can read it, but this check's client cannot.
        what = f"the topics cannot be checked before the run: {error.what}"
        return [Problem(what=what, key=key, hint=error.hint, severity="warning")]
    except LakefeedError as error:
        return [Problem.of(error, key=key)]
    if source.topics_pattern is not None:
        # Compare the pattern with the whole name, as Spark does.
        if any(re.fullmatch(source.topics_pattern, topic) for topic in existing):
            return []
        names = ", ".join(existing[:10]) or "no topics yet"
        hint = f"a pattern must match a topic's whole name; the broker has {names}"
        unmatched = ResourceMissing("the pattern matches no topic", where=where, hint=hint)
        found = [Problem.of(unmatched, key="source.kafka.topics_pattern")]
    else:
        found = [
            Problem.of(missing_topic(topic, existing, where=where), key=f"source.kafka.topics.{index}")
            for index, topic in enumerate(source.topics or ())
            if topic not in existing
        ]
    # A pipeline with many tables also reads topics that are created during the run.
    return [replace(each, severity="warning") if may_come else each for each in found]


def _start(source: KafkaSource) -> list[Problem]:
    """Warn if a new feed could not begin at ``source.kafka.start``, a setting that later starts do not use."""
    from lakefeed.clients.kafka.selection import SETTING, first_offsets
    from lakefeed.records.sources import SourceTopics

    if source.starting.kind not in ("group", "offsets"):
        return []
    try:
        topics = SourceTopics(source).describe()
    except LakefeedError:
        return []  # ``_topics`` reports this error, and missing topics.
    if None in topics.values():
        return []
    try:
        first_offsets(source, topics)
    except Unreachable:
        return []
    except LakefeedError as error:
        problem = Problem.of(error, key=SETTING)
        what = f"a new feed could not begin: {problem.what}"
        return [replace(problem, what=what, severity="warning")]
    return []


def _subjects(
    encoded: Encoded, block: str, part: str, topic: str | None, kept: Callable[[], bool] = bool
) -> list[Check]:
    """Return checks that the registry has the subjects, or that the registry answers if the subject is unknown.

    ``kept`` returns whether the table stores a reader's schema; if so, a subject without a usable version is only a
    warning.
    """
    if (registry := encoded.registry) is None:
        return []
    key = f"{block}.{encoded.kind}.{'subject' if encoded.subject else 'registry'}"
    subject = encoded.subject or (f"{topic}-{part}" if topic is not None else None)
    given = encoded.avro is not None and encoded.avro.schema_file is not None

    def latest() -> list[Problem]:
        from lakefeed.records.decode.registry import NotARegistry

        try:
            passed = _subject(registry, None if given else subject, encoded.kind)
        except LakefeedError as error:
            problem = Problem.of(error, key=key)
            if not isinstance(error, ConfigError | ResourceMissing) or isinstance(error, NotARegistry):
                return [problem]
            try:
                if not kept():
                    return [problem]
            except (LakefeedError, OSError) as unread:
                why = unread.what if isinstance(unread, LakefeedError) else str(unread)
                what = f"lakefeed cannot check whether the table has a schema that reads the records: {why}"
                hint = getattr(unread, "hint", None)
                return [problem, Problem(what=what, key=key, hint=hint, severity="warning")]
            passed = [error.what]
        hint = "records with this schema become dead letters; the table's or an older schema reads other records"
        found = [Problem(what=what, key=key, about=registry.url, hint=hint, severity="warning") for what in passed]
        return [*found, *(encrypted_fields(registry, subject, part=part, key=key) if subject is not None else ())]

    checks: list[Check] = [latest]
    for at, name in enumerate(encoded.avro.subjects if encoded.avro is not None else ()):
        if topic is not None or "{topic}" not in name:
            allowed = name.replace("{topic}", topic or "")
            checks.append(checked(f"{block}.avro.subjects.{at}", partial(_subject, registry, allowed, encoded.kind)))
    return checks


def _keeps_schema(config: PipelineConfig, connections: Connections) -> bool:
    """Return whether the table stores a reader's schema of this feed; raise an error if the table cannot be read."""
    from lakefeed.clients.iceberg.reader import open_table

    if (name := config.sink.chosen.snapshot_table) is None:
        return False
    with suppress(ResourceMissing):
        return f"lakefeed.reader.{config.name}" in open_table(name, connections=connections).properties
    return False


def _subject(registry: Registry, subject: str | None, kind: str) -> list[str]:
    """Return why a subject's newest versions are unusable, if an older version is usable; otherwise raise an error."""
    from lakefeed.records.decode.avro_schema import usable_versions
    from lakefeed.records.decode.registry import SchemaRegistry

    client = SchemaRegistry.of(registry)
    if subject is None:
        client.subjects()
        return []
    return next(usable_versions(None, client, subject, block=kind))[2]


def _places(config: PipelineConfig, connections: Connections) -> list[Check]:
    """Return checks of the buckets and folders that the pipeline writes to."""
    buckets: dict[str, str] = {}
    folders: list[Check] = []
    for key, place in stored_at(config, connections).items():
        if is_local(place):
            folders.append(checked(key, partial(_folder, local_folder(place))))
        elif (parts := urlsplit(place)).scheme in ("s3", "s3a"):
            buckets.setdefault(parts.netloc, key)
    return [*folders, *(_buckets(buckets, connections) if buckets else ())]


def _folder(path: Path) -> None:
    """Raise an error unless a folder is writable or can be created."""
    existing = next(each for each in (path, *path.parents) if each.exists())
    where = str(existing)
    if not existing.is_dir():
        raise ConfigError("this must be a folder, and it is a file", where=where, hint="name another path")
    try:
        # Create a temporary file: to check permissions is not enough, because some file systems ignore them.
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        hint = "name a folder that this user may write, or change the folder's permissions"
        raise AccessDenied(f"the folder cannot be written to: {error.strerror}", where=where, hint=hint) from None


def _buckets(buckets: Mapping[str, str], connections: Connections) -> list[Check]:
    """Return checks of buckets; ``buckets`` has, by bucket name, the option that names the bucket."""
    keys: Keys | None = None
    found: list[Check] = []
    try:
        keys = configured_keys(connections.s3)
    except MissingExtra as error:
        what = f"no S3 keys are set: Spark will use AWS's default chain, which this check cannot use: {error.what}"
        found.append(partial(list, [Problem(what=what, key="s3", hint=error.hint, severity="warning")]))
    except LakefeedError as error:
        return [partial(list, [Problem.of(error, key="s3")])]
    ask = partial(require_bucket, s3=connections.s3, keys=keys)
    return [*found, *(checked(key, partial(ask, bucket)) for bucket, key in buckets.items())]


def _missing_columns(config: PipelineConfig) -> list[Problem]:
    """Warn of each column in a setting that the subject's latest schema lacks; the stored schema may still have it."""
    if config.has_many_tables or config.decode.envelope is not None or decoded_columns(config) is not None:
        return []
    if (latest := _latest_schema(config)) is None:
        return []
    columns = [str(field["name"]) for field in json.loads(latest)["fields"]]
    what = "which the subject's latest schema does not have"
    return [
        replace(problem, severity="warning", what=problem.what.replace("which the rows do not have", what))
        for problem in missing_columns(config, columns)
    ]


def _change_events(config: PipelineConfig) -> list[Problem]:
    """Return a problem if the registered schema of the values is not that of change events with rows."""
    if config.decode.envelope is None or (latest := _latest_schema(config)) is None:
        return []
    from lakefeed.records.decode.changes import why_no_rows
    from lakefeed.records.schema.fit import columns_of

    error = why_no_rows(columns_of(latest))
    return [] if error is None else [Problem.of(error, key="decode.envelope")]


def _refused_columns(config: PipelineConfig) -> list[Problem]:
    """Find columns that a sink refuses; those of a registry cause warnings, since records may use older versions."""
    rows = None if config.has_many_tables or config.decode.envelope else _rows(config)
    if rows is None:
        return []
    from lakefeed.records.schema.fit import paths

    is_latest = config.decode.avro is None or config.decode.avro.schema_file is None
    found = refusals(config, list(paths(rows)), place=f"decode.{config.decode.kind}")
    return [replace(each, severity="warning") if is_latest else each for each in found]


def _rows(config: PipelineConfig) -> StructType | None:
    """Return the rows' columns; None if only Spark can determine them, or if another check fails."""
    from lakefeed.records.schema.fit import columns_of

    avro = config.decode.avro
    try:
        given = avro.schema_file.read_text("utf-8") if avro is not None and avro.schema_file is not None else None
        text = None if config.transform is not None else given or _latest_schema(config)
        return None if text is None else with_metadata(columns_of(text), config)
    except (LakefeedError, OSError):
        return None


def _latest_schema(config: PipelineConfig) -> str | None:
    """Return a subject's latest version as an Avro schema; None if only the JVM can translate it, or a check fails."""
    registry, decode = config.decode.registry, config.decode
    topics = config.source.numbered.topics if config.source.numbered is not None else None
    subject = decode.subject or (f"{topics[0]}-value" if topics else None)
    if registry is None or subject is None or (decode.avro is None and decode.json_schema is None):
        return None
    from lakefeed.records.decode.avro_schema import table_schema
    from lakefeed.records.decode.registry import SchemaRegistry

    try:
        latest = SchemaRegistry.of(registry).latest(subject, block=decode.kind)
        return table_schema(None, latest, registry=registry.url)
    except LakefeedError:
        return None  # The check of the subject itself reports this error.


def _catalog(config: PipelineConfig, connections: Connections) -> list[Check]:
    if (name := config.sink.chosen.catalog_name) is None:
        return []
    if name not in connections.catalogs:
        return [checked(f"sink.{config.sink.kind}.table", lambda: connections.catalog(name))]
    catalog = connections.catalogs[name]
    key = f"catalogs.{name}.uri"
    if catalog.type == "glue":
        return []  # The check of the buckets tests the keys for AWS.
    if (file := catalog.sqlite_file) is not None:
        # If the warehouse is a folder of this machine, a run creates it, and ``_places`` checks it.
        is_made = catalog.folder is not None and file.parent == catalog.folder and not file.parent.exists()
        return [] if is_made else [checked(key, partial(_sqlite, file))]
    return [checked(key, partial(catalogs.ask_rest_catalog if catalog.type == "rest" else _server, catalog))]


def _sqlite(path: Path) -> None:
    if not path.parent.is_dir():
        hint = f"mkdir -p {path.parent}, or correct the catalog's uri"
        raise ResourceMissing("the folder of the SQLite catalog does not exist", where=str(path.parent), hint=hint)
    hint = "let this user read and write the folder, or name another file in the catalog's uri"
    if not path.exists():
        if not os.access(path.parent, os.W_OK):
            raise AccessDenied("the SQLite catalog cannot be created in this folder", where=str(path), hint=hint)
        return
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as error:
        what = f"the SQLite catalog cannot be read: {error.strerror}"
        raise AccessDenied(what, where=str(path), hint=hint) from None
    if start and start != b"SQLite format 3\0":
        hint = "correct the catalog's uri, or move the file away"
        raise ConfigError("the catalog's file is not a SQLite database", where=str(path), hint=hint)
    if not os.access(path, os.W_OK):
        hint = "let this user write the file, or name another file in the catalog's uri"
        raise AccessDenied("the SQLite catalog cannot be written to", where=str(path), hint=hint)


def _server(catalog: Catalog) -> None:
    """Raise an error unless a database or metastore server listens and, for PostgreSQL, a login succeeds."""
    if catalog.uri.startswith(catalogs.POSTGRESQL) and catalogs.can_log_in():
        # If only Java can read the TLS settings, the check sends no password: it only connects to the port.
        with suppress(JavaOnly):
            catalogs.log_in(catalog, timeout=TIMEOUT_SECONDS)
            return
    # Hive allows several metastores, separated by commas; it is enough if one of them answers.
    addresses = catalog.uri.removeprefix("jdbc:").split(",")
    for number, parts in enumerate(map(urlsplit, addresses), start=1):
        port = parts.port or {"postgresql": 5432, "mysql": 3306, "mariadb": 3306, "thrift": 9083}.get(parts.scheme)
        if parts.hostname is None or port is None:
            return
        try:
            socket.create_connection((parts.hostname, port), timeout=TIMEOUT_SECONDS).close()
            return
        except OSError as error:
            what = "the Hive metastore" if parts.scheme == "thrift" else "the catalog's database"
            why = f"{what} does not answer: {error.strerror or error}"
            if number == len(addresses):
                hint = "start the server, or correct the catalog's uri"
                raise Unreachable(why, where=f"{parts.hostname}:{port}", hint=hint) from None


def _table_problems(config: PipelineConfig, connections: Connections) -> Iterator[Problem]:
    """Find tables whose metadata is lost, and tables with other contents than the feed's rows or dead letters.

    If a table cannot be opened for another reason, other checks or the start of the run report that reason.
    """
    from lakefeed.clients.iceberg.reader import open_table

    for key, table, require in _tables(config):
        catalog = connections.catalogs.get(catalog_of(table))
        # Do not open a missing SQLite catalog: that would create its file, and a check must not change anything.
        if catalog is None or (catalog.sqlite_file is not None and not catalog.sqlite_file.exists()):
            continue
        try:
            schema = open_table(table, connections=connections).schema()
        except (LakefeedError, OSError) as error:
            if isinstance(error, LakefeedError) and error.what == METADATA_GONE:
                yield Problem.of(error, key=key)
            continue
        yield from checked(key, partial(require, table, [field.name for field in schema.fields]))()
        if require is require_rows:
            yield from checked(key, partial(require_own_types, table, schema))()


def _tables(config: PipelineConfig) -> Iterator[tuple[str, str, Callable[[str, list[str]], None]]]:
    parts = [config]
    if config.has_many_tables:
        named = [*(config.kafka.topics or ()), *config.table_rules.topics]
        parts = [config_of(config, topic) for topic in dict.fromkeys(named)]
    for part in parts:
        for place, block in part.sink_blocks:
            for option, table in block.chosen.snapshot_tables.items():
                yield f"{place}.{block.kind}.{option}", table, require_rows
        if part.dead_letters is not None and part.dead_letters.table is not None:
            yield "dead_letters.table", part.dead_letters.table, require_dead_letters


def with_metadata(columns: StructType, config: PipelineConfig) -> StructType:
    """Return the columns of rows without a transform: the values' columns, and those for metadata and for deletes."""
    from lakefeed.records.decode.changes import row_type
    from lakefeed.records.decode.verdict import metadata_column
    from lakefeed.records.schema.fit import spark_types

    t = spark_types()
    if config.decode.envelope == "debezium":
        columns = row_type(columns)
    struct: StructType = t.StructType([*columns.fields])
    for name in kept_metadata(config):
        headers = t.ArrayType(t.StructType().add("key", "string").add("value", "binary"))
        struct.add(metadata_column(name), headers if name == "headers" else METADATA_TYPES[name])
    if (sink := config.upserting) is not None and sink.on_delete == "mark":
        struct.add(DELETED, "boolean")
    return struct
