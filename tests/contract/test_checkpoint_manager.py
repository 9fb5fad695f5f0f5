"""On all stores, the checkpoint manager gives the guarantees that Spark expects, with the stated requests."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from tests.support.checkpoint import Checkpoint, counting, introduce, java_class
from tests.support.stores import Bucket

HADOOP_EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"


@pytest.fixture
def root(bucket: Bucket) -> str:
    """Return a new checkpoint location."""
    return bucket.url(f"run-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def log(spark: SparkSession, root: str) -> Checkpoint:
    """Return a checkpoint manager for a log, after the manager has probed the store."""
    Checkpoint.at(root, spark=spark).java.createCheckpointDirectory()
    return Checkpoint.at(f"{root}/offsets", spark=spark)


def test_the_write_of_a_new_entry_makes_one_put_and_no_other_request(spark: SparkSession, log: Checkpoint) -> None:
    log.exists()
    with counting(spark) as counted:
        for batch in range(5):
            assert not log.exists(f"{batch}")
            log.write(f"{batch}", b"offsets of this batch")
    assert counted.requests == {"PutObject": 5}


def test_written_entries_are_read_and_listed_without_requests(spark: SparkSession, log: Checkpoint) -> None:
    assert not log.exists()
    log.java.mkdirs(log.path())
    assert log.exists()
    assert log.names() == []
    for batch in ("0", "1", "2.compact"):
        log.write(batch, b"v1\n" + batch.encode())
    with counting(spark) as counted:
        assert log.exists()
        assert log.exists("1")
        assert not log.exists("3")
        assert log.names() == ["0", "1", "2.compact"]
        assert log.names(glob="*.compact") == ["2.compact"]
        assert log.read("2.compact") == b"v1\n2.compact"
        with pytest.raises(Py4JJavaError) as missing:
            log.read("3")
    assert java_class(missing.value) == "java.io.FileNotFoundException"
    assert counted.requests == {}


def test_a_restart_makes_one_list_request_and_one_get_for_each_entry_that_is_read(
    spark: SparkSession, log: Checkpoint
) -> None:
    for batch in range(3):
        log.write(f"{batch}", f"batch {batch}".encode())
    again = Checkpoint.at(log.root, spark=spark)
    with counting(spark) as counted:
        assert again.exists()
        assert again.names() == ["0", "1", "2"]
        for _ in range(3):
            assert again.read("2") == b"batch 2"
    assert counted.requests == {"ListObjectsV2": 1, "GetObject": 1}


def test_the_second_writer_of_an_entry_gets_hadoops_file_already_exists_exception(
    spark: SparkSession, log: Checkpoint
) -> None:
    other = Checkpoint.at(log.root, spark=spark)
    assert not other.exists("0")
    log.write("0", b"first")
    with counting(spark) as counted, pytest.raises(Py4JJavaError) as refused:
        other.write("0", b"second")
    assert java_class(refused.value) == HADOOP_EXISTS
    assert counted.requests == {"PutObject": 1, "HeadObject": 1}
    assert log.read("0") == other.read("0") == b"first"


def test_a_second_close_of_a_refused_entry_also_fails(spark: SparkSession, log: Checkpoint) -> None:
    log.write("0", b"first")
    stream = Checkpoint.at(log.root, spark=spark).begin("0", b"second")
    for _ in range(2):
        with pytest.raises(Py4JJavaError) as refused:
            stream.close()
        assert java_class(refused.value) == HADOOP_EXISTS
    stream.cancel()
    assert Checkpoint.at(log.root, spark=spark).read("0") == b"first"


def test_of_two_racing_writers_exactly_one_wins(spark: SparkSession, log: Checkpoint) -> None:
    other = Checkpoint.at(log.root, spark=spark)
    with ThreadPoolExecutor(2) as threads:
        for batch in range(50):
            streams = [log.begin(f"{batch}", b"one"), other.begin(f"{batch}", b"two")]
            won = list(threads.map(_won, streams))
            assert sorted(won) == [False, True]
            winner = b"one" if won[0] else b"two"
            assert Checkpoint.at(log.root, spark=spark).read(f"{batch}") == winner


def _won(stream: Any) -> bool:
    try:
        stream.close()
    except Py4JJavaError as error:
        if java_class(error) != HADOOP_EXISTS:
            raise
        return False
    return True


def test_overwriting_replaces_an_entry(spark: SparkSession, root: str) -> None:
    state = Checkpoint.at(f"{root}/state/0/0", spark=spark)
    with counting(spark) as counted:
        state.write("1.delta", b"first attempt", overwrite=True)
        state.write("1.delta", b"second", overwrite=True)
    assert counted.requests == {"PutObject": 2}
    assert state.read("1.delta") == b"second"


def test_a_cancelled_entry_leaves_no_object(bucket: Bucket, spark: SparkSession, log: Checkpoint) -> None:
    small = log.begin("0", b"unfinished")
    with counting(spark) as counted:
        small.cancel()
        small.close()
    assert counted.requests == {}
    large = log.java.createAtomic(log.path("1"), False)
    for _ in range(6):
        large.write(bytes(30 << 20))
    large.cancel()
    assert not log.exists("0")
    assert not log.exists("1")
    assert Checkpoint.at(log.root, spark=spark).names(glob="*") == [] if log.exists() else True
    assert bucket.pending_uploads() == []


@pytest.mark.slow
def test_a_large_entry_is_also_written_conditionally(spark: SparkSession, log: Checkpoint) -> None:
    other = Checkpoint.at(log.root, spark=spark)
    streams = [
        log.java.createAtomic(log.path("9.compact"), False),
        other.java.createAtomic(other.path("9.compact"), False),
    ]
    for stream in streams:
        for _ in range(5):
            stream.write(bytes(30 << 20))
    streams[0].close()
    with pytest.raises(Py4JJavaError) as refused:
        streams[1].close()
    assert java_class(refused.value) == HADOOP_EXISTS
    assert Checkpoint.at(log.root, spark=spark).java.list(log.path())[0].getLen() == 150 << 20


def test_a_directory_exists_as_long_as_it_has_entries(spark: SparkSession, root: str) -> None:
    checkpoint = Checkpoint.at(root, spark=spark)
    assert not checkpoint.exists("state")
    checkpoint.write("state/0/1/1.delta", b"x", overwrite=True)
    checkpoint.write("state-of-something-else", b"x", overwrite=True)
    for name in ("state", "state/0", "state/0/1", "state/0/1/1.delta", ""):
        assert checkpoint.exists(name), name
    for name in ("stat", "state/1", "state/0/1/1", "state/0/1/1.delt"):
        assert not checkpoint.exists(name), name
    assert sorted(checkpoint.names("state/0")) == ["1"]
    with pytest.raises(Py4JJavaError) as missing:
        checkpoint.names("state/7")
    assert java_class(missing.value) == "java.io.FileNotFoundException"


def test_deletes_of_expired_entries_are_sent_in_one_request(
    bucket: Bucket, spark: SparkSession, log: Checkpoint
) -> None:
    assert not log.exists()
    for batch in range(8):
        log.write(f"{batch}", b"x")
    log.flush()
    with counting(spark) as counted:
        for batch in range(6):
            log.delete(f"{batch}")
        log.delete("99")
        assert log.names() == ["6", "7"]
        assert not log.exists("0")
        assert Checkpoint.at(log.root, spark=spark).names() == ["6", "7"]
    assert counted.requests == {"ListObjectsV2": 1}
    with counting(spark) as counted:
        log.flush()
    expected = {"DeleteObjects": 1} | ({"ListObjectVersions": 1} if bucket.versioned else {})
    # Only the first delete in a bucket asks whether the bucket is versioned.
    assert counted.requests.pop("GetBucketVersioning", 1) == 1
    assert counted.requests == expected
    assert nothing_but(bucket, log, ["6", "7"])


def test_deletes_of_the_newest_entries_are_sent_immediately(bucket: Bucket, log: Checkpoint) -> None:
    for batch in range(4):
        log.write(f"{batch}", b"x")
    log.delete("2")
    log.delete("3")
    assert nothing_but(bucket, log, ["0", "1"])
    log.write("2", b"again")
    log.flush()
    assert log.read("2") == b"again"
    assert nothing_but(bucket, log, ["0", "1", "2"])


def test_a_rewritten_file_survives_its_pending_delete(bucket: Bucket, spark: SparkSession, root: str) -> None:
    state = Checkpoint.at(f"{root}/state/0/0", spark=spark)
    for version in (1, 2, 3):
        state.write(f"{version}.delta", b"old", overwrite=True)
    state.delete("1.delta")
    assert not state.exists("1.delta")
    state.write("1.delta", b"new", overwrite=True)
    state.flush()
    assert state.read("1.delta") == b"new"
    state.delete("2.delta")
    state.write("2.delta", b"new")
    state.flush()
    assert state.read("2.delta") == b"new"
    assert sorted(set(bucket.keys(state.root.removeprefix(bucket.url() + "/")))) == [
        f"{state.root.removeprefix(bucket.url() + '/')}/{version}.delta" for version in (1, 2, 3)
    ]


def test_the_delete_of_an_entry_does_not_reveal_an_older_version(
    bucket: Bucket, spark: SparkSession, root: str
) -> None:
    state = Checkpoint.at(f"{root}/state/0/0", spark=spark)
    for attempt in range(3):
        state.write("1.delta", f"attempt {attempt}".encode(), overwrite=True)
    state.delete("1.delta")
    state.flush()
    assert nothing_but(bucket, state, [])
    assert not Checkpoint.at(state.root, spark=spark).exists("1.delta")


def test_a_directory_is_deleted_with_its_content(bucket: Bucket, spark: SparkSession, root: str) -> None:
    checkpoint = Checkpoint.at(root, spark=spark)
    for name in ("state/0/0/1.delta", "state/0/0/1.delta", "state/0/1/2.delta", "state2/0/0/1.delta", "metadata"):
        checkpoint.write(name, b"x", overwrite=True)
    Checkpoint.at(root, spark=spark).delete("state")
    assert nothing_but(bucket, checkpoint, ["metadata", "state2/0/0/1.delta"])
    Checkpoint.at(root, spark=spark).delete("metadata")
    Checkpoint.at(root, spark=spark).delete("never-was-there")
    assert nothing_but(bucket, checkpoint, ["state2/0/0/1.delta"])
    Checkpoint.at(root, spark=spark).delete()
    assert nothing_but(bucket, checkpoint, [])


def nothing_but(bucket: Bucket, checkpoint: Checkpoint, names: list[str]) -> bool:
    """Return whether the log has only these entries, one version of each, and no delete marker."""
    prefix = checkpoint.root.removeprefix(bucket.url() + "/") + "/"
    expected = [prefix + name for name in names]
    assert bucket.keys(prefix) == expected
    if bucket.versioned:
        assert bucket.versions(prefix) == (expected, [])
    return True


@pytest.mark.parametrize("writers", [2, 16])
@pytest.mark.parametrize("versions", ["as they are", "suspended"])
def test_the_probe_runs_once_per_bucket_and_leaves_no_object(
    bucket: Bucket, spark: SparkSession, writers: int, versions: str
) -> None:
    fresh = bucket.store.new_bucket()
    if versions == "suspended" and fresh.versioned:
        fresh.keep_versions("Suspended")
    introduce(spark, fresh)
    conf = {"lakefeed.checkpoint.probe.writers": f"{writers}"}
    with counting(spark) as counted:
        Checkpoint.at(fresh.url("c"), spark=spark, conf=conf).java.createCheckpointDirectory()
    assert counted.requests["PutObject"] == writers
    if versions == "as they are":
        asked = {} if fresh.versioned else {"GetBucketVersioning": 1}
        assert counted.requests == {"PutObject": writers, "DeleteObject": 1} | asked
    with counting(spark) as counted:
        Checkpoint.at(fresh.url("c"), spark=spark, conf=conf).java.createCheckpointDirectory()
    assert counted.requests == {}
    assert fresh.keys() == []
    if fresh.versioned:
        assert fresh.versions() == ([], [])


def test_a_start_lists_the_checkpoint_only_once(spark: SparkSession, root: str) -> None:
    location = Checkpoint.at(root, spark=spark)
    location.java.createCheckpointDirectory()
    with counting(spark) as counted:
        for name in ("metadata", "offsets", "commits", "state"):
            assert not location.exists(name)
        for name in ("offsets", "commits", "sources/0"):
            assert not Checkpoint.at(f"{root}/{name}", spark=spark).exists()
    assert counted.requests == {"ListObjectsV2": 1}
    location.write("metadata", b"{}")
    Checkpoint.at(f"{root}/sources/0", spark=spark).write("0", b"first offsets")
    with counting(spark) as counted:
        assert Checkpoint.at(f"{root}/sources/0", spark=spark).read("0") == b"first offsets"
    assert counted.requests == {}
    Checkpoint.at(f"{root}/offsets", spark=spark).write("0", b"offsets")

    again = Checkpoint.at(root, spark=spark)
    again.java.createCheckpointDirectory()
    with counting(spark) as counted:
        found = [name for name in ("metadata", "offsets", "commits", "state") if again.exists(name)]
        assert found == ["metadata", "offsets"]
        assert Checkpoint.at(f"{root}/offsets", spark=spark).names() == ["0"]
        assert not Checkpoint.at(f"{root}/commits", spark=spark).exists()
        for _ in range(2):
            assert Checkpoint.at(f"{root}/sources/0", spark=spark).read("0") == b"first offsets"
    assert counted.requests == {"ListObjectsV2": 1, "GetObject": 1}


def test_the_listing_at_the_start_is_used_until_the_first_offsets_entry_is_written(
    bucket: Bucket, spark: SparkSession, root: str
) -> None:
    location = Checkpoint.at(root, spark=spark)
    location.java.createCheckpointDirectory()
    assert not location.exists("state")
    bucket.put(root.removeprefix(bucket.url() + "/") + "/state/0/0/1.delta", b"an executor's")
    assert not location.exists("state")
    Checkpoint.at(f"{root}/offsets", spark=spark).write("0", b"offsets")
    assert location.exists("state")
    assert location.exists("state/0/0/1.delta")


def test_a_driver_with_an_outdated_listing_cannot_write_an_existing_entry(
    spark: SparkSession, bucket: Bucket, root: str
) -> None:
    location = Checkpoint.at(root, spark=spark)
    location.java.createCheckpointDirectory()
    late = Checkpoint.at(f"{root}/offsets", spark=spark)
    assert not late.exists()
    bucket.put(root.removeprefix(bucket.url() + "/") + "/offsets/0", b"the other driver's")
    with pytest.raises(Py4JJavaError) as refused:
        late.write("0", b"ours")
    assert java_class(refused.value) == HADOOP_EXISTS
    assert late.read("0") == b"the other driver's"


def test_files_of_other_programs_are_listed_and_not_changed(
    bucket: Bucket, spark: SparkSession, log: Checkpoint
) -> None:
    prefix = log.root.removeprefix(bucket.url() + "/")
    bucket.put(f"{prefix}/README.txt", b"not ours")
    bucket.put(f"{prefix}/0", b"theirs")
    assert log.names() == ["0", "README.txt"]
    assert log.read("0") == b"theirs"
    assert log.names(glob="[0-9]*") == ["0"]


def test_a_local_checkpoint_is_managed_by_sparks_own_class(spark: SparkSession, tmp_path: Any) -> None:
    local = Checkpoint.at(f"file:{tmp_path}/offsets", spark=spark)
    assert not local.exists()
    local.java.mkdirs(local.path())
    local.write("0", b"x")
    assert local.java.isLocal()
    with pytest.raises(Py4JJavaError) as refused:
        local.write("0", b"y")
    assert java_class(refused.value) == HADOOP_EXISTS


def test_the_error_names_a_setting_out_of_range(spark: SparkSession, root: str) -> None:
    with pytest.raises(
        IllegalArgumentException, match=r"lakefeed.checkpoint.probe.writers is 1; it must be from 2 to 64"
    ):
        Checkpoint.at(root, spark=spark, conf={"lakefeed.checkpoint.probe.writers": "1"})
