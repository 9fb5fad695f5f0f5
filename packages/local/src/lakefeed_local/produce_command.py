"""``lakefeed topics produce``: write rows of files, or generated rows, into a topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from lakefeed.cli.options import (
    FILE,
    bootstrap_option,
    bootstrap_servers_of,
    log_file_option,
    master_option,
    output_option,
    registry_of,
    registry_option,
)
from lakefeed.cli.output import echo, emit
from lakefeed.clients.spark.session import log_path, running, session
from lakefeed.clients.spark.signals import begin_work, stop_on_signals
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.lazy import DataFrame, SparkSession
from lakefeed.messages.printable import counted
from lakefeed_local.arguments import kafka_options, pairs

if TYPE_CHECKING:
    from lakefeed.records.decode.registry import SchemaRegistry, SchemaText
    from lakefeed_encode.encode import Encoding
    from lakefeed_local.produce.write import Produced

PAGE = "topics"


class _CheckedCommand(click.Command):
    """Refuses contradictory options while parsing: ``lakefeed deploy manifest`` parses the options, but no more."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            _Order(**ctx.params).check()
        return rest


@click.command(cls=_CheckedCommand)
@click.argument("topic")
@click.option("--file", "path", metavar="PATH", help="A file, folder or pattern: local, or s3a://bucket/key.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "json", "parquet"]),
    help="Format of the files.  [default: by the path's extension]",
)
@click.option("--generate", type=click.Choice(["taxi"]), help="Generate rows instead of reading files.")
@click.option("--rows", type=click.IntRange(0), help="Number of rows to generate.")
@click.option("--seed", type=int, default=7, show_default=True, help="The same seed gives the same rows.")
@click.option("--start", type=click.IntRange(0), default=0, help="Number of the first row to generate.")
@click.option(
    "--encode",
    type=click.Choice(
        ["confluent-avro", "confluent-protobuf", "json-schema", "avro", "protobuf", "json", "csv", "string"]
    ),
    default="confluent-avro",
    show_default=True,
)
@click.option(
    "--schema-file",
    type=FILE,
    help="Avro schema, .proto file or JSON Schema, as --encode expects it; for json and csv an Avro schema.  "
    "[default: the subject's latest; if it has none, a schema for the rows' types]",
)
@click.option("--message", metavar="NAME", help="Message of a Protobuf schema.  [default: the first one]")
@click.option("--subject", help="Subject in the registry.  [default: by --subject-name]")
@click.option(
    "--subject-name",
    "strategy",
    type=click.Choice(["topic", "record", "topic-record"]),
    default="topic",
    show_default=True,
    help="The rule for names of subjects: TOPIC-value, the record's full name, or both.",
)
@click.option(
    "--schema-id",
    "id_place",
    type=click.Choice(["prefix", "header"]),
    default="prefix",
    show_default=True,
    help="Write the schema's id before the value, or its GUID into the header __value_schema_id.",
)
@registry_option
@click.option("--key", metavar="COLUMN", help="Column of the key.  [default: trip_key with --generate taxi]")
@click.option("--header", "headers", multiple=True, metavar="KEY=VALUE", help="A header of each record.")
@click.option("--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]))
@click.option("--rate", type=float, help="The most records per second in total.")
@click.option("--set", "settings", multiple=True, metavar="kafka.KEY=VALUE", help="A Kafka producer setting.")
@click.option("--stream", is_flag=True, help="Follow the folder: also send new files, until the command is stopped.")
@click.option("--checkpoint", metavar="PATH", help="Checkpoint folder of --stream.")
@master_option
@log_file_option
@bootstrap_option
@output_option
def produce(**options: Any) -> None:
    """Write rows into TOPIC, which must exist.

    Rows come from --file (CSV with a header, JSON lines, Parquet) or from --generate. With confluent-avro,
    confluent-protobuf and json-schema, the schema is registered, and values have its id: see --schema-id.

    Ctrl-C ends with status 130, SIGTERM with 143, SIGHUP with 129, after printing how many records the topic got. With
    --stream, these signals end the command after the current micro-batch, with status 0. If they arrive before the
    first record, the status is 0, too.
    """
    produced, encoding = _Order(**options).run()
    document = {
        "topic": produced.topic,
        "records": produced.records,
        "seconds": round(produced.seconds, 3),
        "records_per_second": round(produced.records_per_second),
        "encode": encoding.format,
        "subject": encoding.subject,
        "schema_id": encoding.schema_id,
    }
    schema = f", schema id {encoding.schema_id} ({encoding.subject})" if encoding.subject else ""
    rate = f"{produced.records_per_second:,.0f}/s"
    text = f"{produced.topic}: {counted(produced.records, 'record')} in {produced.seconds:.1f} s ({rate}){schema}"
    emit(document, text)


class _Order(SimpleNamespace):
    """The values of the command's options, as attributes."""

    def check(self) -> None:
        """Refuse contradictory options."""
        from lakefeed_encode.encode import FRAMED

        no_meaning = f"has no meaning with --encode {self.encode}"
        for wrong, what, hint in (
            ((self.path is None) == (self.generate is None), "give either --file or --generate", None),
            (self.generate is not None and self.rows is None, "--generate requires --rows", "--rows 1000000"),
            (self.rows is not None and self.generate is None, "--rows belongs to --generate", None),
            (self.stream and self.path is None, "--stream follows the folder that --file names", None),
            (self.stream and self.checkpoint is None, "--stream requires --checkpoint", "--checkpoint PATH"),
            (self.checkpoint is not None and not self.stream, "--checkpoint belongs to --stream", None),
            (self.subject is not None and self.encode not in FRAMED, f"--subject {no_meaning}", None),
            (self.message is not None and "protobuf" not in self.encode, f"--message {no_meaning}", None),
            (self.id_place == "header" and self.encode not in FRAMED, f"--schema-id {no_meaning}", None),
            (self.rate is not None and not self.rate > 0, "--rate is above 0", None),
        ):
            if wrong:
                raise ConfigError(what, where="lakefeed topics produce", hint=hint)

    def run(self) -> tuple[Produced, Encoding]:
        """Produce the rows; checks that need no Spark run before Spark starts."""
        from lakefeed.clients.kafka.topics import Topics
        from lakefeed.records.decode.registry import SchemaRegistry
        from lakefeed_encode.encode import FRAMED, encoded, settle
        from lakefeed_local.produce.sources import require_files
        from lakefeed_local.produce.taxi import KEY
        from lakefeed_local.produce.write import sink_options

        servers = bootstrap_servers_of(self.bootstrap_servers)
        settings = pairs(self.settings, option="--set")
        if self.compression is not None:
            settings["kafka.compression.type"] = self.compression
        sink_options(self.topic, servers, settings)
        headers = pairs(self.headers, option="--header")
        if self.path is not None:
            require_files(self.path, format=self.file_format)
        Topics(servers, options=kafka_options(settings)).end_offsets(self.topic)
        registry = SchemaRegistry.of(registry_of(self.registry)) if self.encode in FRAMED else None
        schema = self._schema(registry)
        log_file = self.log_file or log_path("produce")
        echo(f"produce {self.topic}: starting Spark; its log is {log_file}", err=True)
        is_ours = running() is None
        spark = session("produce", master=self.master, log_file=log_file)
        try:
            rows = self._rows(spark, schema)
            key = self.key or (KEY if self.generate else None)
            encoding = settle(
                rows,
                format=self.encode,
                topic=self.topic,
                registry=registry,
                subject=self.subject,
                strategy=self.strategy,
                key=key,
                schema=schema,
                message=self.message,
                id_place=self.id_place,
            )
            return self._send(encoded(rows, encoding, key=key, headers=headers), servers, settings), encoding
        finally:
            if is_ours:
                spark.stop()

    def _send(self, records: DataFrame, servers: str, settings: dict[str, str]) -> Produced:
        from lakefeed.monitor.terminal import ProgressView
        from lakefeed_local.produce.write import Interrupted, ProduceView, produce, produce_stream

        if self.checkpoint is not None:
            with ProgressView(f"produce {self.topic}") as view, stop_on_signals(view.note) as stop:
                return produce_stream(
                    records,
                    self.topic,
                    bootstrap_servers=servers,
                    checkpoint=self.checkpoint,
                    stop=stop,
                    options=settings,
                    rate=self.rate,
                    on_batch=view.batch,
                )
        begin_work()
        with ProduceView(self.topic, expected=self.rows) as shown:
            try:
                return produce(
                    records,
                    self.topic,
                    bootstrap_servers=servers,
                    options=settings,
                    rate=self.rate,
                    reached=shown.reached,
                )
            except Interrupted as interrupted:
                shown.print(f"interrupted: {interrupted.produced.records:,} records of this run are in {self.topic}")
                raise

    def _rows(self, spark: SparkSession, schema: SchemaText | None) -> DataFrame:
        from lakefeed_local.produce.sources import read_rows
        from lakefeed_local.produce.taxi import taxi_rows

        if self.path is None:
            return taxi_rows(spark, self.rows or 0, seed=self.seed, start=self.start)
        from lakefeed.records.decode.avro_schema import avro_schema_of_schema

        types = avro_schema_of_schema(spark, schema, message=self.message) if schema is not None else None
        return read_rows(spark, self.path, format=self.file_format, schema=types, stream=self.stream)

    def _schema(self, registry: SchemaRegistry | None) -> SchemaText | None:
        """Return the schema of --schema-file, or of the generator, or the subject's latest one."""
        from lakefeed.records.decode.registry import SchemaText
        from lakefeed_encode.encode import FRAMED
        from lakefeed_local.produce.taxi import taxi_schema

        kind = FRAMED.get(self.encode) or ("PROTOBUF" if self.encode == "protobuf" else "AVRO")
        if self.schema_file is not None:
            try:
                return SchemaText(text=self.schema_file.read_text("utf-8"), kind=kind)
            except FileNotFoundError:
                hint = "correct --schema-file"
                raise ResourceMissing("there is no such schema file", where=str(self.schema_file), hint=hint) from None
            except (OSError, UnicodeDecodeError) as error:
                what, hint = f"the schema file cannot be read: {error}", "it must be readable text in UTF-8"
                raise ConfigError(what, where=str(self.schema_file), hint=hint) from None
        if self.generate is not None and kind == "AVRO" and self.encode not in ("csv", "string"):
            return SchemaText(text=taxi_schema())
        if registry is None or (self.subject is None and self.strategy != "topic"):
            return None
        try:
            return registry.latest(self.subject or f"{self.topic}-value")
        except ResourceMissing:
            if self.subject is not None:
                raise
            return None
