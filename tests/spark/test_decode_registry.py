"""The decoder requests writers' schemas from a registry: several for a batch, references, outages, credentials."""

import json
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.jvm import java
from lakefeed.errors import AccessDenied, ConfigError, Unreachable, WorldError
from lakefeed.feed.observer import task_counter
from lakefeed.records.decode import ConfluentAvro, decoded, registry_error_of, rows
from lakefeed.records.decode.registry import SchemaRegistry
from tests.support import wire_format
from tests.support.misbehaving import Manner, misbehaving
from tests.support.records import avro_bytes, records, results
from tests.support.registry_in_a_thread import RegistryInAThread


def schema(*fields: tuple[str, Any]) -> dict[str, Any]:
    """Return the schema of a record R with these fields."""
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


V1 = schema(("a", "int"))
V2 = schema(("a", "long"), ("b", "string"))
READER = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "b", "type": "string", "default": "-"},
        {"name": "c", "type": ["null", "double"], "default": None},
    ],
}


def framed(schema_id: int, writer: Any, datum: Any) -> bytes:
    return wire_format.build(schema_id, avro_bytes(writer, datum))


def spec_for(registry: RegistryInAThread, **more: Any) -> ConfluentAvro:
    return ConfluentAvro(registry_url=registry.url, reader_schema=json.dumps(READER), **more)


def test_the_second_registry_address_is_used_if_the_first_does_not_answer(spark: SparkSession) -> None:
    """The addresses are written as for Confluent's clients: ``http://a:8081,http://b:8081``."""
    with RegistryInAThread() as away:
        pass
    with RegistryInAThread() as broken, RegistryInAThread() as registry:
        broken.failing = 503
        registry.put(1, V1)
        urls = f"{away.url}/, {broken.url},{registry.url}"
        assert json.loads(SchemaRegistry(urls).schema(1).text) == V1
        spec = ConfluentAvro(registry_url=urls, reader_schema=json.dumps(READER))
        assert [each.value.a for each in results(decoded(records(spark, [framed(1, V1, {"a": 7})]), spec))] == [7]
        with pytest.raises(ConfigError, match="contains credentials"):
            SchemaRegistry(f"{registry.url},http://a:b@c")
        registry.failing = broken.failing = 301
        with pytest.raises(ConfigError, match="redirects to another one"):
            SchemaRegistry(registry.url).schema(1)


@pytest.mark.quick
def test_decoding_waits_for_a_failing_registry_and_reports_that_it_waits(spark: SparkSession) -> None:
    with RegistryInAThread() as registry:
        registry.put(1, V1)
        registry.failing = 503

        said: list[str] = []
        count, shown = task_counter(spark, group=None, say=said.append), set[str]()

        def repair() -> None:
            """Let the registry answer once the decoder has reported that it waits."""
            until = time.monotonic() + 20
            while not shown and time.monotonic() < until:
                time.sleep(0.05)
                shown.update(found.waits_for for found in [count()] if found is not None and found.waits_for)
            registry.failing = None

        fixing = threading.Thread(target=repair)
        fixing.start()
        [result] = results(decoded(records(spark, [framed(1, V1, {"a": 7})]), spec_for(registry)))
        fixing.join()
        assert (result.value.a, result.error) == (7, None)
        assert registry.requests["/schemas/ids/1"] > 1
        assert shown == {f"{registry.url}: HTTP status 503"}
        assert said == [f"waiting for a server: {registry.url}: HTTP status 503"]
        assert java(spark).http.Waits.any() == ""


def test_an_answer_of_another_kind_of_server_is_refused(spark: SparkSession) -> None:
    with RegistryInAThread() as registry:
        spec = ConfluentAvro(registry_url=f"{registry.url}/wrong", reader_schema=json.dumps(READER))
        with pytest.raises(Exception, match="gave no usable answer") as stopped:
            results(decoded(records(spark, [framed(1, V1, {"a": 7})]), spec))
    assert isinstance(registry_error_of(stopped.value), WorldError)


@pytest.mark.parametrize("status", [404, 401, 302])
def test_decoding_waits_through_a_proxys_error_after_the_registry_has_answered(
    spark: SparkSession, status: int
) -> None:
    with RegistryInAThread() as registry:
        registry.put(1, V1)
        registry.put(2, V1)
        [before] = results(decoded(records(spark, [framed(1, V1, {"a": 7})]), spec_for(registry)))
        registry.failing = status

        def come_back() -> None:
            while not registry.requests["/schemas/ids/2"]:
                time.sleep(0.01)
            registry.failing = None

        back = threading.Thread(target=come_back)
        back.start()
        [after] = results(decoded(records(spark, [framed(2, V1, {"a": 8})]), spec_for(registry)))
        back.join()
    assert [(each.value.a, each.error) for each in (before, after)] == [(7, None), (8, None)]
    assert registry.requests["/schemas/ids/2"] > 1


def test_credentials_reach_only_the_registry(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    password = f"hunter-{uuid.uuid4()}"
    jvm.put_credentials(spark, "mine", username="me", password=SecretStr(password))
    with RegistryInAThread(credentials=f"me:{password}") as registry:
        registry.put(1, V1)
        frame = rows(
            decoded(records(spark, [framed(1, V1, {"a": 7})]), spec_for(registry, credentials="mine")), keep=["offset"]
        )
        assert [row.asDict() for row in frame.collect()] == [{"a": 7, "b": "-", "c": None, "kafka_offset": 0}]
    frame.explain("extended")
    frame.explain("codegen")
    java: Any = frame._jdf
    shown = [
        capsys.readouterr().out,
        java.queryExecution().toString(),
        java.queryExecution().analyzed().toJSON(),
        java.queryExecution().executedPlan().toJSON(),
        str(spark.sparkContext.getConf().getAll()),
        str(spark.conf.getAll),
        str(spark.sql("SET").collect()),
    ]
    assert "lakefeed_decode_" in shown[0]
    assert not [text for text in shown if password in text]


@pytest.mark.quick
def test_wrong_credentials_fail_without_a_retry(spark: SparkSession) -> None:
    jvm.put_credentials(spark, "wrong", username="me", password=SecretStr("no"))
    with RegistryInAThread(credentials="me:yes") as registry:
        registry.put(1, V1)
        began = time.monotonic()
        with pytest.raises(Exception, match="refuses the credentials") as stopped:
            results(decoded(records(spark, [framed(1, V1, {"a": 7})]), spec_for(registry, credentials="wrong")))
        assert isinstance(registry_error_of(stopped.value), AccessDenied)
        assert time.monotonic() - began < 30
        assert registry.requests["/schemas/ids/1"] == 1


def test_unknown_credentials_are_refused(spark: SparkSession) -> None:
    with RegistryInAThread() as registry, pytest.raises(ConfigError, match="The JVM does not have"):
        decoded(records(spark, [b""]), spec_for(registry, credentials="never-put"))


QUICK: tuple[Manner, ...] = ("silent", "drip", "huge", "redirect")


@pytest.mark.parametrize(
    "manners", [QUICK, pytest.param(get_args(Manner), marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_no_misbehaving_server_delays_a_task_longer_than_registry_patience(
    spark: SparkSession, manners: tuple[Manner, ...]
) -> None:
    def asked(manner: Manner) -> Any:
        with misbehaving(manner) as address:
            reader = json.dumps(READER)
            spec = ConfluentAvro(registry_url=f"http://{address}", reader_schema=reader, registry_patience_seconds=1)
            with pytest.raises(Exception, match="lakefeed schema registry") as stopped:
                results(decoded(records(spark, [framed(1, V1, {"a": 7})]), spec))
        return registry_error_of(stopped.value)

    began = time.monotonic()
    with ThreadPoolExecutor(len(manners)) as threads:
        errors = dict(zip(manners, threads.map(asked, manners), strict=True))
    assert time.monotonic() - began < 40
    # The tasks have waited for registries that do not answer. Of these errors, only a redirect may be temporary.
    assert {manner for manner, error in errors.items() if error.passes} == {"redirect"}
    assert all(isinstance(error, Unreachable) for error in errors.values())
    assert "HTTP status 302" in str(errors["redirect"])


def test_a_slow_schema_request_does_not_delay_other_decoders(spark: SparkSession) -> None:
    with RegistryInAThread() as registry:
        registry.put(1, V1)
        registry.put(2, V2)
        arrived = threading.Event()
        registry.held["/schemas/ids/2"] = arrived
        slow, fast = (
            decoded(records(spark, [framed(schema_id, writer, datum)]), spec_for(registry))
            for schema_id, writer, datum in ((2, V2, {"a": 2, "b": "two"}), (1, V1, {"a": 1}))
        )
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(results, slow)
            while not registry.requests["/schemas/ids/2"]:
                time.sleep(0.02)
            try:
                assert [each.value.a for each in results(fast)] == [1]
                assert not waiting.done()
            finally:
                arrived.set()
            assert [each.value.a for each in waiting.result()] == [2]


def test_a_flood_of_unknown_ids_takes_only_seconds(spark: SparkSession) -> None:
    count = 100_000
    value = sf.expr("concat(X'00', unhex(lpad(hex(id + 1000), 8, '0')), X'02')")
    flood = spark.range(0, count, 1, 2).select(
        sf.lit("t").alias("topic"), sf.lit(0).alias("partition"), sf.col("id").alias("offset"), value.alias("value")
    )
    with RegistryInAThread() as registry:
        began = time.monotonic()
        bad = sf.col("decoded.error").startswith(sf.concat(sf.lit("unknown schema id "), sf.col("offset") + 1000))
        [row] = decoded(flood, spec_for(registry)).agg(sf.count_if(bad & sf.col("decoded.value").isNull())).collect()
        assert row[0] == count
        assert time.monotonic() - began < 30
        assert registry.requests.total() < 10_000
        # If a schema is registered after the flood, it is used at the latest from the second record with its id.
        registry.put(500_000, V1)
        found = results(decoded(records(spark, [framed(500_000, V1, {"a": 7})] * 3), spec_for(registry)))
        assert [each.error for each in found[1:]] == [None, None]
