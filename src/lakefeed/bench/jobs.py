"""The Spark jobs of the bench, each in a process of its own: every case begins with a cold JVM."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from lakefeed.bench.cases import RequestCase, Workload
from lakefeed.clients.spark import jars, jvm
from lakefeed.clients.spark.errors import translate
from lakefeed.clients.spark.session import session
from lakefeed.clients.spark.statements import run
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import JobFailed, LakefeedError
from lakefeed.lazy import StreamingQuery
from lakefeed.local import Endpoints
from lakefeed.operations.produce.taxi import KEY, taxi_rows, taxi_schema
from lakefeed.operations.produce.write import produce
from lakefeed.pipeline import Pipeline
from lakefeed.records.encode.encode import to_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

Reader = TypeVar("Reader", "DataFrameReader", "DataStreamReader")

_ABORTABLE = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
_JVM_SECONDS = 60.0
ON_THIS_MACHINE = {
    "spark.master": "local[*]",
    "spark.driver.memory": "3g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def job_process(*, environment: dict[str, str], log: Path) -> Iterator[Callable[..., Any]]:
    """Start a process with variables added to this process's environment; end it with the block.

    Yields a function that runs a job there, one of a module's top level, and returns its result or raises JobFailed.
    With the block its JVM ends too, so that the requests it makes then are not the next case's. Arguments travel
    through a pipe, so secrets in them show nowhere. The process and its JVM write to the log.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=_prepare, initargs=(environment, log)) as pool:

        def run(job: Callable[..., Any], *arguments: Any) -> Any:
            try:
                return pool.submit(_run, job, *arguments).result()
            except BrokenProcessPool:
                what = "the process of the job has ended early"
                raise JobFailed(what, where=str(log), hint="read the log") from None
            except LakefeedError as error:
                raise JobFailed(error.what, where=error.where or str(log), hint=error.hint) from None

        try:
            yield run
            with suppress(JobFailed):
                run(_end_jvm)
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _prepare(environment: dict[str, str], log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for standard in (1, 2):
        os.dup2(file, standard)
    os.environ.update(environment)


def _run(job: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return job(*arguments)
    except Exception as error:
        traceback.print_exc()
        raise translate(error) from None


def environment_of(case: RequestCase, endpoints: Endpoints) -> dict[str, str]:
    """Return the stack's environment, with the case's warehouse."""
    return {**endpoints.as_environment(), "LAKEFEED_WAREHOUSE": case.warehouse}


def produce_trips(work: Workload, endpoints: Endpoints) -> int:
    """Produce the workload's trips into its topic and return the number of records."""
    spark = session("bench-produce")
    records = to_records(
        taxi_rows(spark, work.rows),
        topic=work.topic,
        format="confluent-avro",
        registry=endpoints.schema_registry_url,
        schema=taxi_schema(),
        key=KEY,
    )
    return produce(records, work.topic, bootstrap_servers=endpoints.bootstrap_servers).records


def run_case(case: RequestCase, work: Workload, endpoints: Endpoints) -> dict[str, int]:
    """Land the topic; return the JVM's count of requests by S3 operation."""
    run = _run_pipeline if case.manager == "lakefeed" else _run_plain_spark
    return jvm.s3_requests(run(case, work, endpoints))


def count_rows(path: str) -> int:
    """Count the rows of a Parquet sink through ``_spark_metadata``: those that were committed, each once."""
    return _active_session().read.parquet(path).count()


def _end_jvm() -> None:
    """Stop Spark, where it was started, and wait for the JVM's end."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    _active_session().stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # What the JVM waits for.
    gateway.proc.wait(_JVM_SECONDS)


def cpu_seconds() -> float:
    """Return the CPU time of the JVM and of this process so far."""
    return cpu_seconds_of(jvm_pid()) + time.process_time()


def cpu_seconds_of(pid: int) -> float:
    """Return the CPU time of a process so far."""
    return cpu_time(Path(f"/proc/{pid}/stat"))[1]


def cpu_time(stat: Path) -> tuple[str, float]:
    """Read the name, and the user and system time, of a process or thread; see proc(5)."""
    try:
        text = stat.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "", 0.0  # A thread that has ended meanwhile.
    # Field 2 is the name in parentheses and may hold anything; the times are fields 14 and 15, in hundredths.
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return name, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def on_progress(spark: SparkSession, report: Callable[[Any], None]) -> Callable[[], None]:
    """Call ``report`` with each progress of the session's queries, until the function that is returned is called."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            report(event.progress)

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            pass

    listener = Listener()
    spark.streams.addListener(listener)
    return lambda: spark.streams.removeListener(listener)


def jvm_pid() -> int:
    """Return the process of the driver's JVM, which spark-submit's shell has become."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    return int(gateway.proc.pid)


def _active_session() -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def pipeline_of(case: RequestCase, work: Workload, endpoints: Endpoints) -> Pipeline:
    """Return the pipeline that lands the workload's topic as ``lakefeed run`` does."""
    kafka = {"bootstrap_servers": endpoints.bootstrap_servers, "topics": [work.topic]}
    config = PipelineConfig.model_validate(
        {
            "name": case.name.replace("-", "_"),
            "source": {"kafka": {**kafka, "max_records_per_batch": work.records_a_batch}},
            "decode": {"avro": {"registry": endpoints.schema_registry_url}},
            "sink": {"iceberg": {"table": case.table}} if case.sink == "iceberg" else {"parquet": {"path": case.path}},
            **({"checkpoint": case.checkpoint} if case.has_checkpoint else {}),
            **({"fast_path": case.fast_path} if case.fast_path is not None else {}),
        }
    )
    return Pipeline(config, environment=environment_of(case, endpoints))


def _run_pipeline(case: RequestCase, work: Workload, endpoints: Endpoints) -> SparkSession:
    pipeline = pipeline_of(case, work, endpoints)
    # Not pipeline.session(): its preflight asks S3 from Python, once for each run, outside the JVM and its meter.
    spark = session(case.name, connections=pipeline.connections, conf=work.conf)
    pipeline.run(spark=spark, once=True)
    return spark


def _run_plain_spark(case: RequestCase, work: Workload, endpoints: Endpoints) -> SparkSession:
    spark = plain_session(case, endpoints, work.conf)
    start_plain_stream(spark, case, work, endpoints).awaitTermination()
    return spark


def plain_session(
    case: RequestCase, endpoints: Endpoints, conf: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    """Return a session of nothing but Spark and Iceberg, except that lakefeed's meter is on the class path."""
    from pyspark.sql import SparkSession

    return SparkSession.Builder().config(map={**_plain_settings(case, endpoints), **conf}).getOrCreate()


def topic_source(reader: Reader, topic: str, endpoints: Endpoints) -> Reader:
    """Return Spark's Kafka source of a topic, to read once or as a stream."""
    servers = endpoints.bootstrap_servers
    return reader.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)


def decoded_plainly(records: DataFrame, schema: str, *, is_framed: bool = True, keep: Sequence[str] = ()) -> DataFrame:
    """Decode values with Spark's ``from_avro``, which does not know the five bytes before a registered schema's."""
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.functions import col, lit, substr

    value = substr("value", lit(6)) if is_framed else col("value")
    return records.select(from_avro(value, schema).alias("decoded"), *keep).select("decoded.*", *keep)


def start_plain_stream(
    spark: SparkSession,
    case: RequestCase,
    work: Workload,
    endpoints: Endpoints,
    *,
    options: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start the stream to compare with: Structured Streaming as its documents and the seeds write it.

    ``options`` are further ones of Spark's Kafka source.
    """
    source = topic_source(spark.readStream, work.topic, endpoints).option("startingOffsets", "earliest")
    records = source.option("maxOffsetsPerTrigger", work.records_a_batch).options(**(options or {})).load()
    trips = decoded_plainly(records, taxi_schema())
    writer = trips.writeStream.option("checkpointLocation", case.checkpoint).trigger(availableNow=True)
    if case.sink == "parquet":
        return writer.start(case.path, format="parquet")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
    columns = ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in trips.schema.fields)
    run(spark, f"CREATE TABLE {case.table} ({columns}) USING iceberg")
    return writer.format("iceberg").outputMode("append").toTable(case.table)


def _plain_settings(case: RequestCase, endpoints: Endpoints) -> dict[str, str]:
    """Return the defaults of Spark, S3A and Iceberg, and what a job on this store cannot do without.

    The keys of the store are in the environment, where Spark looks for them.
    """
    catalog = "spark.sql.catalog.lake"
    manager = {"spark.sql.streaming.checkpointFileManagerClass": _ABORTABLE} if case.manager == "abortable" else {}
    return {
        **ON_THIS_MACHINE,
        "spark.app.name": case.name,
        "spark.driver.extraClassPath": os.pathsep.join(map(str, [jvm.jar(), *jars.fetch(["spark", "bench"])])),
        "spark.hadoop.fs.s3a.endpoint": endpoints.s3_endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": endpoints.region,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": endpoints.catalog_uri,
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": case.warehouse,
        f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        # Iceberg's default, its apache client, needs a newer SDK than Hadoop's: it does not start.
        f"{catalog}.http-client.type": "urlconnection",
        f"{catalog}.client.region": endpoints.region,
        f"{catalog}.s3.endpoint": endpoints.s3_endpoint,
        f"{catalog}.s3.path-style-access": "true",
        **manager,
    }
