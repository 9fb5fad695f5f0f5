"""The checkpoint manager retries a failed request or stops the query; the query's result is never wrong."""

import random
import threading

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakefeed.feed.s3_requests import s3_requests
from tests.contract.test_checkpoint_queries import assert_every_number_once, numbers, run_until, settings, writing
from tests.support.checkpoint import Checkpoint, counting, java_class
from tests.support.faults.s3_fault_proxy import FaultProxy, Kind, Request, on
from tests.support.stores import Bucket

ALWAYS = 10**6
EVERY_OPERATION = ("PutObject", "GetObject", "HeadObject", "ListObjectsV2", "DeleteObject", "DeleteObjects")


def use(log: Checkpoint, operation: str) -> None:
    """Send a request of this operation through the log, and check the result."""
    fresh = Checkpoint.at(log.root, spark=log.spark)
    if operation == "PutObject":
        log.write("3", b"batch 3")
        assert log.read("3") == b"batch 3"
    elif operation == "GetObject":
        assert fresh.read("1") == b"batch 1"
    elif operation == "ListObjectsV2":
        assert fresh.names()[:3] == ["0", "1", "2"]
    elif operation == "HeadObject":
        assert Checkpoint.at(log.root.rpartition("/")[0], spark=log.spark).read("offsets/1") == b"batch 1"
    elif operation in ("DeleteObject", "ListObjectVersions"):
        log.delete("2")
        assert log.names() == ["0", "1"]
    elif operation == "CompleteMultipartUpload":
        large = log.java.createAtomic(log.path("3.compact"), False)
        for _ in range(5):
            large.write(bytes(30 << 20))
        large.close()
        assert fresh.java.list(fresh.path())[3].getLen() == 150 << 20
    else:
        log.delete("0")
        log.delete("1")
        log.flush()
        assert log.names() == ["2"]


@pytest.mark.parametrize("kind", ["503", "reset"])
@pytest.mark.parametrize("operation", EVERY_OPERATION)
def test_a_request_that_fails_once_is_retried(log: Checkpoint, proxy: FaultProxy, operation: str, kind: Kind) -> None:
    fault = proxy.spoil(kind, on(operation))
    use(log, operation)
    assert fault.done == 1


@pytest.mark.parametrize("kind", ["503", "reset"])
@pytest.mark.parametrize("operation", EVERY_OPERATION)
def test_a_request_that_fails_permanently_is_an_error(
    bucket: Bucket, log: Checkpoint, proxy: FaultProxy, operation: str, kind: Kind
) -> None:
    proxy.spoil(kind, on(operation), times=ALWAYS)
    with pytest.raises(Py4JJavaError) as failed:
        use(log, operation)
    assert java_class(failed.value) not in {
        "org.apache.hadoop.fs.FileAlreadyExistsException",
        "java.io.FileNotFoundException",
    }
    assert bucket.keys("c/") == ["c/offsets/0", "c/offsets/1", "c/offsets/2"]
    proxy.heal()
    use(log, operation)


@pytest.mark.parametrize("times", [1, ALWAYS])
@pytest.mark.parametrize("kind", ["503", "reset"])
def test_a_failed_request_for_the_buckets_versioning_is_retried(
    spark: SparkSession, bucket: Bucket, proxy: FaultProxy, kind: Kind, times: int
) -> None:
    def begin_and_delete() -> None:
        Checkpoint.at(bucket.url("c"), spark=spark).java.createCheckpointDirectory()
        log = Checkpoint.at(bucket.url("c", "offsets"), spark=spark)
        log.write("0", b"x")
        log.delete("0")

    fault = proxy.spoil(kind, on("GetBucketVersioning"), times=times)
    if times == ALWAYS:
        with pytest.raises(Py4JJavaError):
            begin_and_delete()
        proxy.heal()
        bucket.remove("c/offsets/0")
    begin_and_delete()
    assert fault.done >= 1
    assert bucket.keys("c/offsets/") == []


@pytest.mark.parametrize("kind", ["503", "reset"])
def test_a_failed_listing_of_versions_is_retried(
    log: Checkpoint, bucket: Bucket, proxy: FaultProxy, kind: Kind
) -> None:
    fault = proxy.spoil(kind, on("ListObjectVersions"))
    use(log, "ListObjectVersions")
    assert fault.done == int(bucket.versioned)
    assert bucket.keys("c/") == ["c/offsets/0", "c/offsets/1"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["503", "reset"])
def test_failed_parts_of_a_large_entry_are_retried(log: Checkpoint, proxy: FaultProxy, kind: Kind) -> None:
    begin = proxy.spoil(kind, on("CreateMultipartUpload"))
    part = proxy.spoil(kind, lambda request: "partNumber" in request.query)
    end = proxy.spoil(
        kind, lambda request: request.operation == "CompleteMultipartUpload" and "uploadId" in request.query
    )
    use(log, "CompleteMultipartUpload")
    assert (begin.done, part.done, end.done) == (1, 1, 1)


@pytest.mark.slow
def test_a_large_entry_is_written_although_the_last_reply_is_lost(
    bucket: Bucket, log: Checkpoint, proxy: FaultProxy
) -> None:
    fault = proxy.spoil(
        "lost reply", lambda each: each.operation == "CompleteMultipartUpload" and "uploadId" in each.query
    )
    use(log, "CompleteMultipartUpload")
    assert fault.done == 1
    assert bucket.pending_uploads() == []


def test_an_entry_is_written_although_the_reply_is_lost(
    spark: SparkSession, log: Checkpoint, proxy: FaultProxy
) -> None:
    fault = proxy.spoil("lost reply", on("PutObject"))
    errors = s3_requests(spark).errors
    with counting(spark) as counted:
        log.write("3", b"batch 3")
    assert fault.done == 1
    assert s3_requests(spark).errors - errors == 2
    assert counted.requests == {"PutObject": 2, "HeadObject": 1}
    assert Checkpoint.at(log.root, spark=spark).read("3") == b"batch 3"


def test_an_entry_of_another_driver_is_a_conflict_even_in_a_repeated_request(
    spark: SparkSession, log: Checkpoint, proxy: FaultProxy
) -> None:
    Checkpoint.at(log.root, spark=spark).write("3", b"theirs")
    proxy.spoil("reset", on("PutObject"))
    with pytest.raises(Py4JJavaError) as refused:
        log.write("3", b"ours")
    assert java_class(refused.value) == "org.apache.hadoop.fs.FileAlreadyExistsException"


def test_a_write_without_a_reply_is_an_error_and_the_next_listing_asks_the_store(
    spark: SparkSession, log: Checkpoint, proxy: FaultProxy
) -> None:
    proxy.spoil("lost reply", on("PutObject"))
    proxy.spoil("503", on("HeadObject"), times=ALWAYS)
    with pytest.raises(Py4JJavaError):
        log.write("3", b"batch 3")
    proxy.heal()
    assert log.names() == ["0", "1", "2", "3"]


@pytest.mark.parametrize("kind", ["ignored condition", "501"])
def test_a_store_without_conditional_writes_is_refused(
    spark: SparkSession, bucket: Bucket, proxy: FaultProxy, kind: Kind
) -> None:
    proxy.spoil(kind, lambda request: request.conditional, times=ALWAYS)
    with pytest.raises(Py4JJavaError) as refused:
        Checkpoint.at(bucket.url("c"), spark=spark).java.createCheckpointDirectory()
    message = str(refused.value.java_exception.getMessage())
    assert "If-None-Match" in message
    assert "spark.hadoop.lakefeed.checkpoint.allow-unconditional-writes=true" in message
    assert bucket.keys() == []
    query = numbers(spark).writeStream.format("noop").option("checkpointLocation", bucket.url("c"))
    with pytest.raises(Exception, match="If-None-Match"):
        query.start()
    allowed = Checkpoint.at(
        bucket.url("c", "offsets"), spark=spark, conf={"lakefeed.checkpoint.allow-unconditional-writes": "true"}
    )
    allowed.write("0", b"x")
    with pytest.raises(Py4JJavaError) as exists:
        allowed.write("0", b"y")
    assert java_class(exists.value) == "org.apache.hadoop.fs.FileAlreadyExistsException"


def test_a_store_that_accepts_two_conditional_writes_of_one_key_is_refused(
    spark: SparkSession, bucket: Bucket, proxy: FaultProxy
) -> None:
    proxy.spoil("ignored condition", lambda request: request.conditional, times=3)
    with pytest.raises(Py4JJavaError, match="racing conditional writes"):
        Checkpoint.at(bucket.url("c"), spark=spark).java.createCheckpointDirectory()


def test_the_probe_is_repeated_if_the_reply_to_the_successful_write_is_lost(
    spark: SparkSession, bucket: Bucket, proxy: FaultProxy
) -> None:
    fault = proxy.spoil("lost reply", lambda request: request.conditional)
    with counting(spark) as counted:
        Checkpoint.at(bucket.url("c"), spark=spark).java.createCheckpointDirectory()
    assert fault.done == 1
    assert counted.requests["PutObject"] >= 3
    assert bucket.keys() == []


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_query_neither_loses_nor_doubles_rows_on_a_faulty_store(
    spark: SparkSession, bucket: Bucket, proxy: FaultProxy, seed: int
) -> None:
    chance, lock = random.Random(seed), threading.Lock()
    kinds: tuple[Kind, ...] = ("503", "reset", "lost reply")

    start = writing(numbers(spark), bucket.url("c"), bucket.url("table"))

    def unlucky(_request: Request) -> bool:
        with lock:
            return chance.random() < 0.02

    for kind in kinds:
        proxy.spoil(kind, unlucky, times=ALWAYS)
    stops = 0
    with settings(spark, minBatchesToRetain=4, fileSink__log__compactInterval=3, fileSink__log__cleanupDelay="1s"):
        for batch in (8, 16, 24):
            for _ in range(20):
                try:
                    run_until(start, batch)
                except Exception:  # Any error may stop the query, but the query must not hang until the timeout.
                    stops += 1
                except AssertionError:
                    stops += 1
                else:
                    break
            else:
                pytest.fail("the query never came through")
    proxy.heal()
    assert sum(fault.done for fault in proxy.faults) == 0
    assert_every_number_once(spark.read.parquet(bucket.url("table")), batches=24)
