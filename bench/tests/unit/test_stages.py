"""Each sample of a profile is assigned to a stage."""

from __future__ import annotations

import pytest

from lakefeed_bench.stages import STAGES, Stage, shares, stage_of

TASK = "[Executor task launch worker for task 3.0 tid=77]"
WRITE = "org/apache/spark/sql/execution/datasources/v2/DataWritingSparkTask$.run"
PARQUET = "org/apache/iceberg/shaded/org/apache/parquet/column/impl/ColumnWriterBase.write"
KAFKA = "org/apache/spark/sql/kafka010/consumer/KafkaDataConsumer.get"


@pytest.mark.parametrize(
    ("frames", "stage"),
    [
        ((TASK, WRITE, KAFKA, "org/apache/kafka/clients/consumer/KafkaConsumer.poll", "__memmove"), "fetch"),
        ((TASK, WRITE, KAFKA, "net/jpountz/lz4/LZ4JNI.LZ4_decompress_fast", "LZ4_decompress_fast"), "decompress"),
        ((TASK, WRITE, "org/apache/spark/sql/avro/AvroDataToCatalyst.nullSafeEval"), "decode"),
        ((TASK, WRITE, "io/lakefeed/decode/DecodeFunction.invoke", "java/lang/String.<init>"), "decode"),
        ((TASK, WRITE, "org/apache/spark/sql/catalyst/expressions/GeneratedClass$X.project"), "project"),
        ((TASK, WRITE, PARQUET, "java/util/HashMap.get"), "encode"),
        ((TASK, WRITE, "io/lakefeed/parquet/FixedBuffer.index", "java/util/Arrays.fill"), "encode"),
        ((TASK, WRITE, "io/lakefeed/parquet/Zstd.compress", "com/github/luben/zstd/ZstdCompressCtx.x"), "compress"),
        ((TASK, WRITE, PARQUET, "com/github/luben/zstd/ZstdCompressCtx.compress", "ZSTD_compressBlock"), "compress"),
        ((TASK, PARQUET, "org/apache/iceberg/aws/s3/S3OutputStream.close", "java/net/Socket.write"), "upload"),
        (("[stream execution thread tid=9]", "org/apache/iceberg/SnapshotProducer.commit", "x"), "commit"),
        (("[GC Thread#0 tid=11]", "G1ParScanThreadState::trim_queue"), "gc"),
        (("[C2 CompilerThread0 tid=12]", "Compile::Compile"), "jit"),
        (("[main tid=1]", "sun/nio/ch/Net.poll"), "other"),
        ((), "other"),
    ],
)
def test_the_innermost_known_frame_determines_the_stage(frames: tuple[str, ...], stage: Stage) -> None:
    assert stage_of(list(frames)) == stage


def test_the_share_of_a_stage_is_its_part_of_all_samples() -> None:
    collapsed = f"{TASK};{WRITE};{PARQUET} 30\n[GC Thread#0 tid=11];x 10\n\nwithout a count\n"
    by_stage = shares(collapsed)
    assert (by_stage["encode"], by_stage["gc"], by_stage["fetch"]) == (0.75, 0.25, 0.0)
    assert set(by_stage) == set(STAGES)
    assert set(shares("").values()) == {0.0}
