"""Guards of lakefeed's own Kafka reader and its own Parquet encoder."""

from __future__ import annotations

from tools.guards.guard import java

READER = "tests/integration/test_direct_reader.py::test_"
ENCODER = "tests/spark/test_parquet_encoder.py::test_"
SPARKS = f"{ENCODER}spark_writes_files_with_options_that_the_encoder_lacks"

ON_THE_FAST_PATH = (
    java(
        "fast path: the records of a range are gone",
        "kafka/DirectOptions",
        'consumer.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");',
        'consumer.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");',
        f"{READER}a_range_with_removed_records_is_refused",
    ),
    java(
        "fast path: a range reaches beyond the end of the topic",
        "kafka/PartitionConsumer",
        "throw late(timeoutMs);",
        "next = until;\n                    return;",
        f"{READER}a_range_beyond_the_end_of_the_topic_is_refused",
    ),
    java(
        "fast path: a record after the end of a range is lost to the next range",
        "kafka/PartitionConsumer",
        "ahead = record;",
        "",
        f"{READER}any_range_of_offsets_is_read_correctly_after_any_other_range",
    ),
    java(
        "fast path: a range includes a record after its end",
        "kafka/PartitionConsumer",
        "if (record.offset() >= until) {",
        "if (false) {",
        f"{READER}any_range_of_offsets_is_read_correctly_after_any_other_range",
    ),
    java(
        "fast path: a range is read from the end of the last range",
        "kafka/PartitionConsumer",
        "if (offset != next) {",
        "if (next < 0) {",
        f"{READER}any_range_of_offsets_is_read_correctly_after_any_other_range",
    ),
    java(
        "fast path: a run gets records that another run has fetched",
        "kafka/PartitionConsumer",
        "Key key = new Key(of, settings, partition);",
        'Key key = new Key("", settings, partition);',
        f"{READER}the_first_batch_after_a_recreated_topic_gets_no_prefetched_records_of_the_old_topic",
    ),
    java(
        "fast path: a dead letter or skipped record becomes a row",
        "kafka/DecodedReader",
        "if (!outcome.invoke(topic, range.partition(), record.offset(), verdict, why, schemaId)) {",
        "outcome.invoke(topic, range.partition(), record.offset(), verdict, why, schemaId);\n        if (false) {",
        f"{READER}skipped_records_and_dead_letters_are_counted_and_not_returned",
    ),
    java(
        "encoder: a file ignores an unknown setting of Spark's writer",
        "parquet/ColumnarParquet",
        'if (!KNOWN_SETTINGS.contains("parquet." + name)) {',
        "if (false) {",
        SPARKS,
    ),
    java(
        "encoder: a file ignores the setting for pages of version 2",
        "parquet/ColumnarParquet",
        "if (version != WriterVersion.PARQUET_1_0) {",
        "if (false) {",
        SPARKS,
    ),
    java(
        "encoder: a file ignores that dates and timestamps are to be rebased",
        "parquet/ColumnarParquet",
        'if (!mode.equalsIgnoreCase("CORRECTED")) {',
        "if (false) {",
        SPARKS,
    ),
    java(
        "encoder: a write ignores the limit of open files",
        "parquet/ColumnarParquet",
        "if (session.maxConcurrentOutputFileWriters() > 0) {",
        "if (false) {",
        SPARKS,
    ),
    java(
        "encoder: values of an unknown type are encoded wrongly",
        "parquet/ValueKind",
        "case INT64 -> isMicros(logical, rows) || logical == null && rows == DataTypes.LongType ? LONG : null;",
        "case INT64 -> LONG;",
        SPARKS,
    ),
    java(
        "encoder: a file ignores an unknown property of the table",
        "parquet/ColumnarFile",
        "boolean isUnknown = name.startsWith(WRITER_PROPERTIES) && !KNOWN_PROPERTIES.contains(name);",
        "boolean isUnknown = false;",
        f"{ENCODER}iceberg_writes_tables_with_a_property_that_the_encoder_does_not_know",
    ),
)
