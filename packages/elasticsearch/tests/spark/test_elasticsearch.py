"""The sink lands batches in a real search server, through a proxy that fails as a test requires."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import AccessDenied, CheckpointMismatch, ConfigError, LakefeedError
from lakefeed.ledger.snapshot_summary import Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from packages.elasticsearch.tests.search_feed import SearchFeed
from tests.support.servers.authority import Authority
from tests.support.servers.search import Answer, SearchServer, gate

UPSERT: dict[str, Any] = {"mode": "upsert", "keys": ["id", "city"]}


@pytest.fixture
def shop(spark: SparkSession, search: SearchServer) -> Iterator[SearchFeed]:
    with gate(search) as opened:
        yield SearchFeed(spark, search, opened)


@pytest.mark.quick
def test_each_batch_is_committed_once_with_its_ranges(shop: SearchFeed) -> None:
    index = shop.started(bulk_documents=7)
    assert shop.land(index, shop.rows(30), 30) == 30
    again = shop.commit(30, batch=0, start=0)
    assert index.has(again)
    assert shop.land(index, shop.rows(20, start=30), 20) == 20
    found = shop.documents()
    assert len(found) == 50
    assert found["topic/0/42"] == {"id": 42, "v": "v42"}
    position = index.position()
    assert position is not None
    assert position.ranges == shop.commit(20, start=30).ranges
    [last] = index.commits()
    assert (last.batch_id, last.rows, last.fence) == (1, 20, shop.fence)
    # A request has at most 7 documents, so batches of 30 and 20 documents need at least 5 and 3 requests.
    assert shop.gate.bulks() >= 5 + 3


def test_a_batch_that_is_written_twice_leaves_the_same_documents(shop: SearchFeed) -> None:
    index = shop.started()
    shop.gate.before = lambda method, path, body: (
        (500, b'{"error":"x"}') if method == "PUT" and "if_seq_no" in path else None
    )
    with pytest.raises(ConfigError, match="refuses"):
        shop.land(index, shop.rows(10))
    assert len(shop.documents()) == 10
    assert index.position() is None
    shop.gate.before = lambda method, path, body: None
    assert shop.land(shop.started(), shop.rows(10)) == 10
    assert len(shop.documents()) == 10


def test_a_commit_whose_answer_is_lost_lands_once(shop: SearchFeed) -> None:
    index = shop.started()
    before = shop.ledger()["number"]

    def lost(method: str, path: str, answer: Answer) -> Answer | None:
        if method == "PUT" and "if_seq_no" in path:
            shop.gate.after = lambda method, path, answer: answer
            return None
        return answer

    shop.gate.after = lost
    assert shop.land(index, shop.rows(10)) == 10
    assert shop.ledger()["number"] == before + 1


def test_a_batch_that_does_not_begin_at_the_ledgers_end_is_refused(shop: SearchFeed) -> None:
    index = shop.started()
    shop.land(index, shop.rows(10))
    after: list[dict[str, Any]] = [{"start": 11}, {"start": 5}, {"topic_id": "id-two"}]
    for wrong in after:
        with pytest.raises(CheckpointMismatch):
            shop.land(index, shop.rows(10, start=wrong.get("start", 10)), **wrong)
    with pytest.raises(CheckpointMismatch, match="does not continue"):
        index.has(shop.commit(10, start=11))
    assert len(shop.documents()) == 10


@pytest.mark.quick
def test_only_the_driver_that_took_the_fence_last_can_commit(shop: SearchFeed) -> None:
    older = shop.started()
    fence = shop.fence
    newer = shop.started()
    with pytest.raises(CheckpointMismatch, match="taken over"):
        shop.land(older, shop.rows(10), fence=fence)
    assert shop.documents() == {}
    shop.land(newer, shop.rows(10))
    assert len(shop.documents()) == 10


def test_documents_of_a_replaced_driver_do_not_overwrite_newer_documents(shop: SearchFeed) -> None:
    older = shop.started(**UPSERT)
    fence = shop.fence

    def overtaken(method: str, path: str, body: bytes) -> Answer | None:
        # While this request of the older driver is open, a newer driver lands a batch at the same offsets.
        if "/_bulk" in path:
            shop.gate.before = lambda method, path, body: None
            newer = shop.started()
            shop.land(newer, shop.changes([(1, "Bern", "new", 0, 5)]))
        return None

    shop.gate.before = overtaken
    with pytest.raises(CheckpointMismatch, match="taken over"):
        shop.land(older, shop.changes([(1, "Bern", "old", 0, 5)]), batch=0, start=0, fence=fence)
    assert [each["v"] for each in shop.documents().values()] == ["new"]


def test_a_commit_sent_before_another_driver_took_the_fence_does_not_land(shop: SearchFeed) -> None:
    older = shop.started()
    fence = shop.fence

    def overtaken(method: str, path: str, body: bytes) -> Answer | None:
        if method == "PUT" and "if_seq_no" in path:
            shop.gate.before = lambda method, path, body: None
            shop.started()
        return None

    shop.gate.before = overtaken
    with pytest.raises(CheckpointMismatch, match="taken over"):
        shop.land(older, shop.rows(10), batch=0, start=0, fence=fence)
    assert older.position() is None


@pytest.mark.slow
def test_a_driver_reads_the_fence_again_before_a_retry(shop: SearchFeed) -> None:
    older = shop.started()
    fence = shop.fence

    def away(method: str, path: str, body: bytes) -> Answer | None:
        if "/_bulk" in path:
            shop.gate.before = lambda method, path, body: None
            shop.started()
            return 503, b"{}"
        return None

    shop.gate.before = away
    with pytest.raises(CheckpointMismatch, match="taken over"):
        shop.land(older, shop.rows(1), batch=0, start=0, fence=fence)
    assert (shop.gate.bulks(), shop.documents()) == (1, {})


def test_only_documents_that_a_busy_server_refused_are_sent_again(shop: SearchFeed) -> None:
    index = shop.started()
    sent: list[int] = []

    def busy(method: str, path: str, answer: Answer) -> Answer | None:
        if "/_bulk" not in path:
            return answer
        status, body = answer
        document = json.loads(body)
        sent.append(len(document["items"]))
        if len(sent) == 1:
            error = {"type": "es_rejected_execution_exception", "reason": "queue is full"}
            document = {"errors": True, "items": [{"index": {"status": 429, "error": error}}, *document["items"][1:]]}
        return status, json.dumps(document).encode()

    shop.gate.after = busy
    rows = shop.rows(10).coalesce(1)
    assert shop.land(index, rows) == 10
    assert sent == [10, 1]
    assert len(shop.documents()) == 10


@pytest.mark.slow
def test_requests_that_are_too_large_for_the_server_are_halved(shop: SearchFeed) -> None:
    index = shop.started()
    shop.gate.before = lambda method, path, body: (413, b"") if body.count(b"\n") > 6 and "/_bulk" in path else None
    shop.land(index, shop.rows(20))
    assert len(shop.documents()) == 20


def test_the_error_about_a_refused_document_contains_no_value_of_the_document(shop: SearchFeed) -> None:
    shop.server.ask("PUT", f"/{shop.index}", {"mappings": {"properties": {"v": {"type": "long"}}}})
    index = shop.started()
    with pytest.raises(ConfigError, match=r"document topic/0/0: (mapper|document)_parsing") as raised:
        shop.land(index, shop.rows(1))
    assert "[v] of type [long]" in raised.value.what
    assert "v0" not in str(raised.value)
    assert raised.value.hint is not None
    assert index.position() is None


def test_no_refusal_shows_values_of_a_document_for_any_type_of_field(shop: SearchFeed) -> None:
    name, secret = shop.index, "open sesame"
    kinds = ("date", "boolean", "object", "keyword")
    for kind in kinds:
        shop.index = f"{name}_{kind}"
        shop.server.ask("PUT", f"/{shop.index}", {"mappings": {"properties": {"v": {"type": kind}}}})
        # The keyword's value is too long for a term.
        value = f"repeat('{secret}', 6000)" if kind == "keyword" else f"'{secret}'"
        rows = shop.rows(1).selectExpr("id", f"{value} AS v", "kafka_topic", "kafka_partition", "kafka_offset")
        with pytest.raises(ConfigError, match=r"document topic/0/0: \w+") as raised:
            shop.land(shop.started(), rows)
        message = str(raised.value)
        # Some error reasons quote the text as a list of byte values.
        assert secret not in message, (kind, message)
        assert ", ".join(str(each) for each in secret.encode()) not in message, (kind, message)


def test_the_newest_change_of_each_key_lands(shop: SearchFeed) -> None:
    index = shop.started(mode="upsert", keys=["ID", "city"])
    first = [(1, "Bern", "a", 0, 0), (1, "Bern", "b", 0, 1), (2, "Basel", "c", 0, 2), (3, "a/b", "d", 0, 3)]
    assert shop.land(index, shop.changes(first)) == 3
    assert {each: found["v"] for each, found in shop.documents().items()} == {
        "1/Bern": "b",
        "2/Basel": "c",
        "3/a\\/b": "d",
    }
    second = [(2, "Basel", None, 0, 10), (9, "Genf", None, 0, 11), (1, "Bern", "e", 0, 12)]
    assert shop.land(index, shop.changes(second)) == 3
    found = shop.documents()
    assert {each["v"] for each in found.values()} == {"e", "d"}
    assert set(found["1/Bern"]) == {"id", "city", "v", "kafka_topic", "kafka_partition", "kafka_offset"}
    shop.land(index, shop.changes([(2, "Basel", "back", 0, 20)]))
    assert shop.documents()["2/Basel"]["v"] == "back"


@pytest.mark.slow
def test_on_delete_mark_keeps_deleted_documents(shop: SearchFeed) -> None:
    index = shop.started(**UPSERT, on_delete="mark")
    shop.land(index, shop.changes([(1, "Bern", "a", 0, 0)]))
    shop.land(index, shop.changes([(1, "Bern", None, 0, 10)]))
    assert [(each["v"], each["lakefeed_deleted"]) for each in shop.documents().values()] == [(None, True)]


@pytest.mark.slow
def test_changes_without_a_key_or_an_order_are_refused(shop: SearchFeed) -> None:
    index = shop.started(**UPSERT)
    with pytest.raises(ConfigError, match="has no key"):
        shop.land(index, shop.changes([(None, "Bern", "a", 0, 0)]))
    with pytest.raises(ConfigError, match="more than one partition"):
        shop.land(index, shop.changes([(1, "Bern", "a", 0, 0), (1, "Bern", "b", 1, 0)]))
    assert shop.documents() == {}


@pytest.mark.slow
def test_an_update_replaces_the_documents_of_its_groups_and_a_repeated_key_is_refused(shop: SearchFeed) -> None:
    def counts(*rows: tuple[str | None, int]) -> Any:
        return shop.spark.createDataFrame(list(rows), "zip STRING, hits BIGINT")

    index = shop.started(counts(), groups=True, mode="upsert", keys=["zip"])
    shop.land(index, counts(("8001", 1), (None, 2), ("", 3)))
    shop.land(index, counts(("8001", 5)))
    assert {each: found["hits"] for each, found in shop.documents().items()} == {"8001": 5, "\\N": 2, "\\E": 3}
    with pytest.raises(ConfigError, match="2 rows with the same zip"):
        shop.land(index, counts(("8001", 5), ("8001", 6)))


def test_values_of_every_type_are_stored_and_can_be_searched(shop: SearchFeed) -> None:
    rows = shop.spark.sql(
        "SELECT 9007199254740993L AS big, CAST(1.5 AS FLOAT) AS f, CAST('12.50' AS DECIMAL(12,2)) AS price, true AS b, "
        "DATE'2024-01-02' AS day, TIMESTAMP'2024-01-02 03:04:05.123456Z' AS at, "
        "TIMESTAMP_NTZ'2024-01-02 03:04:05.123456' AS local, X'00ff' AS bytes, CAST(NULL AS STRING) AS none, "
        "'2024-01-01' AS text, array('a', 'b') AS tags, map('', 1, 'x.y', 2) AS counts, "
        "named_struct('a', 1, 'b', array(2)) AS inner, 't' AS kafka_topic, 0 AS kafka_partition, 1L AS kafka_offset"
    )
    shop.land(shop.started(rows), rows)
    text = shop.server.ask("GET", f"/{shop.index}/_source/t%2F0%2F1")
    assert text["big"] == 9007199254740993
    assert text["price"] == 12.5
    assert text["at"] == "2024-01-02T03:04:05.123456Z"
    assert text["local"] == "2024-01-02T03:04:05.123456"
    assert (text["day"], text["bytes"], text["none"], text["f"]) == ("2024-01-02", "AP8=", None, 1.5)
    assert (text["tags"], text["counts"], text["inner"]) == (["a", "b"], {"": 1, "x.y": 2}, {"a": 1, "b": [2]})
    mapping = shop.server.ask("GET", f"/{shop.index}/_mapping")[shop.index]["mappings"]["properties"]
    assert {name: each.get("type") for name, each in mapping.items()} == {
        "b": "boolean", "big": "long", "bytes": "binary", "at": "date", "counts": "object", "day": "date",
        "f": "double", "inner": None, "local": "date", "none": "text", "price": "double", "tags": "text",
        "text": "text",
    }  # fmt: skip
    shop.documents()
    queries: list[Any] = [
        {"range": {"at": {"gte": "2024-01-02T03:04:05Z", "lt": "2024-01-02T03:04:06Z"}}},
        {"range": {"price": {"gt": 12, "lt": 13}}},
        {"term": {"tags.keyword": "b"}},
        {"term": {"inner.b": 2}},
        {"term": {"big": 9007199254740993}},
    ]
    for query in queries:
        assert shop.server.ask("POST", f"/{shop.index}/_count", {"query": query})["count"] == 1, query


@pytest.mark.slow
def test_a_new_column_gets_a_field_except_in_an_index_that_another_client_created(shop: SearchFeed) -> None:
    def fields() -> set[str]:
        return set(shop.server.ask("GET", f"/{shop.index}/_mapping")[shop.index]["mappings"]["properties"])

    index = shop.started()
    wider = shop.rows(3).selectExpr("*", "named_struct('x', 1) AS more")
    index.apply_schema(wider.schema)
    assert fields() == {"id", "v", "more"}
    index.apply_schema(shop.rows(3).selectExpr("*", "named_struct('x', 1, 'y', 2) AS more").schema)
    assert index.changes(wider.schema)[0].statements == ()

    shop.index += "_others"
    shop.server.ask("PUT", f"/{shop.index}", {"mappings": {"dynamic": False, "properties": {"id": {"type": "long"}}}})
    shop.land(shop.started(), wider, batch=0, start=0)
    assert fields() == {"id"}
    assert len(shop.documents()) == 3


@pytest.mark.slow
def test_unsuitable_indexes_are_refused(shop: SearchFeed) -> None:
    def refused(message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            shop.started()

    shop.server.ask("PUT", f"/{shop.index}", {"settings": {"index.translog.durability": "async"}})
    refused("before they are on disk")
    other = f"{shop.index}_other"
    shop.server.ask("PUT", f"/{other}")
    alias = f"{shop.index}_alias"
    actions = [{"add": {"index": each, "alias": alias}} for each in (shop.index, other)]
    shop.server.ask("POST", "/_aliases", {"actions": actions})
    shop.index, before = alias, shop.index
    refused("is an alias of 2 indexes")
    shop.server.ask("DELETE", f"/{before}")
    shop.land(shop.started(), shop.rows(2))
    assert len(shop.documents()) == 2


@pytest.mark.slow
def test_changed_keys_and_decimal_keys_are_refused(shop: SearchFeed) -> None:
    shop.started(**UPSERT)
    with pytest.raises(ConfigError, match="would give the documents other ids"):
        shop.started(keys=["id"])
    with pytest.raises(ConfigError, match="decimal"):
        shop.driver(keys=["price"]).apply_schema(
            shop.changes([]).selectExpr("*", "CAST(1 AS DECIMAL(5,2)) AS price").schema
        )


def test_append_refuses_rows_that_do_not_come_from_exactly_one_record(shop: SearchFeed) -> None:
    index = shop.started()
    with pytest.raises(ConfigError, match="rows lack kafka_topic"):
        shop.driver().apply_schema(shop.rows(1).drop("kafka_topic").schema)
    unknown = shop.rows(2).selectExpr("id", "kafka_topic", "kafka_partition", "nullif(kafka_offset, 1) AS kafka_offset")
    with pytest.raises(ConfigError, match="1 rows of the batch have no"):
        shop.land(index, unknown)
    twice = shop.rows(2).selectExpr("explode(array(1, 2)) AS n", "*")
    with pytest.raises(ConfigError, match="several of one"):
        shop.land(index, twice)
    assert shop.documents() == {}


@pytest.mark.slow
def test_a_recreated_topic_is_refused_because_its_documents_would_have_the_ids_of_older_documents(
    shop: SearchFeed,
) -> None:
    index = shop.started()
    shop.land(index, shop.rows(10))
    moved = OffsetRanges((OffsetRange("topic", 0, 0, 0),), {"topic": "id-two"})
    move = PositionReset(reason="accepted-loss", positions={("topic", 0): (10, 0)}, left_ids={"topic": "id-one"})
    index.commit_reset(Commit(shop.name, 0, moved, fence=shop.fence, move=move), commit_id=uuid.uuid4().hex)
    with pytest.raises(CheckpointMismatch, match="was recreated"):
        shop.land(index, shop.rows(1), 1, batch=0, start=0, topic_id="id-two")
    assert shop.documents()["topic/0/0"]["v"] == "v0"


@pytest.mark.slow
def test_a_removed_index_stops_the_feed_until_the_next_start(shop: SearchFeed) -> None:
    index = shop.started()
    shop.land(index, shop.rows(10))
    shop.server.ask("DELETE", f"/{shop.index}")
    with pytest.raises(LakefeedError, match="was removed"):
        shop.land(index, shop.rows(10, start=10))
    with pytest.raises(CheckpointMismatch, match="was removed"):
        index.apply_schema(shop.rows(0).schema)
    assert index.position() is None
    # A new driver starts over; the versions of its documents are higher than those of the removed index.
    shop.land(shop.started(), shop.rows(10), batch=0, start=0)
    assert len(shop.documents()) == 10


@pytest.mark.slow
def test_a_wrong_login_and_a_missing_right_are_reported(shop: SearchFeed) -> None:
    with pytest.raises(AccessDenied, match="refuses the login") as raised:
        shop.driver(password="another one").position()
    assert "another one" not in str(raised.value)
    index = shop.started(password=shop.gate.password)
    shop.gate.before = lambda method, path, body: (403, b"{}") if "/_bulk" in path else None
    with pytest.raises(AccessDenied, match="forbids the login to write"):
        shop.land(index, shop.rows(10))


def test_a_certificate_of_a_private_authority_needs_ca_file(
    spark: SparkSession, search: SearchServer, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    with gate(search, certificate=authority.sign("server", "127.0.0.1").both) as opened:
        shop = SearchFeed(spark, search, opened)
        with pytest.raises(ConfigError, match="is not trusted") as raised:
            shop.started()
        assert "ca_file" in str(raised.value)
        with pytest.raises(ConfigError, match="cannot be read"):
            shop.started(ca_file=tmp_path / "nowhere.pem")
        assert shop.land(shop.started(ca_file=authority.file), shop.rows(10)) == 10
        assert len(shop.documents()) == 10


@pytest.mark.slow
def test_a_document_id_does_not_depend_on_the_sessions_time_zone(shop: SearchFeed) -> None:
    rows = shop.spark.sql(
        "SELECT TIMESTAMP'2024-07-01 12:00:00.5Z' AS at, DATE'2024-07-01' AS day, X'00FF' AS bytes, true AS yes"
    )
    keys = ["at", "day", "bytes", "yes"]
    index = shop.started(rows, groups=True, mode="upsert", keys=keys)
    zone = shop.spark.conf.get("spark.sql.session.timeZone")
    try:
        shop.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        shop.land(index, rows)
    finally:
        shop.spark.conf.set("spark.sql.session.timeZone", str(zone))
    shop.land(index, rows)
    assert list(shop.documents()) == ["2024-07-01 12:00:00.5/2024-07-01/00ff/true"]
