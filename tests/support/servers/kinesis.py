"""Run moto's Kinesis server in this process, with its faults in splits and merges corrected.

When a shard is split or merged, moto moves its records to the new shards, still adds records to it, and never reports
its end. Here the records stay, a closed shard takes no records and ends, and sequence numbers are as long as real
numbers and increase across all shards.
"""

import itertools
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3  # type: ignore[import-untyped]
from moto.core.exceptions import JsonRESTError
from moto.kinesis.models import KinesisBackend, Shard, Stream, kinesis_backends
from moto.kinesis.utils import decompose_shard_iterator
from moto.moto_server.threaded_moto_server import ThreadedMotoServer

REGION, ACCOUNT = "us-east-1", "123456789012"
FIRST_NUMBER = 49590338271490256608559692538361571095921575989136588898
_numbers = itertools.count(FIRST_NUMBER, 7)


@dataclass
class Kinesis:
    """The running server, and the faults that it produces on demand."""

    endpoint: str
    refusals: list[str] = field(default_factory=list)
    """The error codes of the next requests for records, one for each request."""
    empty_pages: int = 0
    """The number of next requests for records that get an empty page, although there are records."""
    requests: int = 0
    """The number of requests for records so far."""

    def __post_init__(self) -> None:
        self._client = boto3.client(
            "kinesis",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id="kinesis-key",
            aws_secret_access_key="kinesis-secret",
        )

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables with this server's address, without those of store and catalog."""
        return {"AWS_ENDPOINT_URL_KINESIS": self.endpoint, "AWS_REGION": REGION}

    def create(self, stream: str, *, shards: int = 2) -> None:
        self._client.create_stream(StreamName=stream, ShardCount=shards)

    def delete(self, stream: str) -> None:
        self._client.delete_stream(StreamName=stream)

    def put(self, stream: str, values: Iterable[Any]) -> None:
        """Put values, as JSON or as bytes; the partition key of a value is its text."""
        records = [
            {"Data": each if isinstance(each, bytes) else json.dumps(each).encode(), "PartitionKey": str(each)[:200]}
            for each in values
        ]
        for first in range(0, len(records), 500):
            found = self._client.put_records(StreamName=stream, Records=records[first : first + 500])
            assert not found["FailedRecordCount"]

    def open_shards(self, stream: str) -> list[dict[str, Any]]:
        """Return the open shards, sorted by their range of hash keys."""
        found = [
            each
            for each in self._client.list_shards(StreamName=stream)["Shards"]
            if "EndingSequenceNumber" not in each["SequenceNumberRange"]
        ]
        return sorted(found, key=lambda each: int(each["HashKeyRange"]["StartingHashKey"]))

    def split(self, stream: str) -> None:
        """Split the first open shard in the middle."""
        shard = self.open_shards(stream)[0]
        middle = sum(int(each) for each in shard["HashKeyRange"].values()) // 2
        self._client.split_shard(StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle))

    def merge(self, stream: str) -> None:
        """Merge the first two open shards."""
        first, second = (each["ShardId"] for each in self.open_shards(stream)[:2])
        self._client.merge_shards(StreamName=stream, ShardToMerge=first, AdjacentShardToMerge=second)

    def outlive(self, stream: str) -> None:
        """Remove all records, as the end of the stream's retention would."""
        for shard in self._stream(stream).shards.values():
            shard.records = OrderedDict()
        self.keep(stream, hours=0)

    def keep(self, stream: str, *, hours: int) -> None:
        """Set the retention period that the stream reports."""
        self._stream(stream).retention_period_hours = hours

    def remove_first(self, stream: str) -> None:
        """Remove the oldest record of each shard that has any."""
        for shard in self._stream(stream).shards.values():
            if shard.records:
                del shard.records[next(iter(shard.records))]

    def _stream(self, stream: str) -> Stream:
        return kinesis_backends[ACCOUNT][REGION].streams[stream]


@contextmanager
def kinesis() -> Iterator[Kinesis]:
    """Run a server on a free port until the block ends."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    running = Kinesis(f"http://{host}:{port}")
    put_back = _put_right(running)
    try:
        yield running
    finally:
        put_back()
        server.stop()


def _put_right(server: Kinesis) -> Callable[[], None]:
    """Correct moto's shards; return a function that restores moto."""
    split, merge, read = Stream.split_shard, Stream.merge_shards, KinesisBackend.get_records
    put, route = Shard.put_record, Stream.get_shard_for_key

    def keeping(change: Callable[..., None]) -> Callable[..., None]:
        def changed(self: Stream, *arguments: str) -> None:
            kept = {name: shard.records for name, shard in self.shards.items()}
            for shard in self.shards.values():
                shard.records = OrderedDict()
            try:
                change(self, *arguments)
            finally:
                for name, records in kept.items():
                    self.shards[name].records = records

        return changed

    def put_record(self: Shard, partition_key: str, data: str, explicit_hash_key: str) -> str:
        from moto.kinesis.models import Record

        number = next(_numbers)
        self.records[number] = Record(partition_key, data, number, explicit_hash_key)
        return str(number)

    def get_shard_for_key(self: Stream, partition_key: str, explicit_hash_key: str) -> Shard | None:
        closed = {name: shard for name, shard in self.shards.items() if not shard.is_open}
        everything, self.shards = self.shards, {n: each for n, each in self.shards.items() if n not in closed}
        try:
            return route(self, partition_key, explicit_hash_key)
        finally:
            self.shards = everything

    def get_records(self: KinesisBackend, stream_arn: str | None, shard_iterator: str, limit: int | None) -> Any:
        server.requests += 1
        if server.refusals:
            code = server.refusals.pop()
            raise JsonRESTError(code, f"{code}, as the test requires")
        if server.empty_pages:
            server.empty_pages -= 1
            return shard_iterator, [], 1000
        following, records, behind = read(self, stream_arn, shard_iterator, limit)
        name, shard_id, last = decompose_shard_iterator(following)
        shard = self.streams[name].shards[shard_id]
        left = any(number > int(last) for number in shard.records)
        # The last value is the distance of the page from the newest record. moto would compute it from the records'
        # times, which may be equal.
        return following if shard.is_open or left else None, records, max(behind, 1) if left else 0

    Stream.split_shard, Stream.merge_shards = keeping(split), keeping(merge)  # type: ignore[method-assign]
    Shard.put_record, Stream.get_shard_for_key = put_record, get_shard_for_key  # type: ignore[method-assign]
    KinesisBackend.get_records = get_records  # type: ignore[method-assign]

    def put_back() -> None:
        Stream.split_shard, Stream.merge_shards = split, merge  # type: ignore[method-assign]
        Shard.put_record, Stream.get_shard_for_key = put, route  # type: ignore[method-assign]
        KinesisBackend.get_records = read  # type: ignore[method-assign]

    return put_back
