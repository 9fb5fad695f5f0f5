"""Translate Spark's exceptions to lakefeed's errors, which name the cause and what to do about it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from lakefeed.errors import (
    AccessDenied,
    BrokerUnreachable,
    CheckpointInUse,
    CheckpointMismatch,
    ConfigError,
    DecodeError,
    DriverReplaced,
    FileDenied,
    JobFailed,
    LakefeedError,
    RecordsLost,
    ResourceMissing,
    RowsRefused,
    Unreachable,
)
from lakefeed.messages.printable import without_values

TAKEN_OVER = "another driver has taken over this feed; this driver has stopped, and the table has every batch once"
ONE_PLACE = "run the feed in one place only"

METADATA_GONE = "the table's metadata file, which the catalog names, does not exist"
BRING_BACK = (
    "if the table's folder was moved, move it back: Iceberg stores absolute paths; else restore the file from a backup "
    "or drop the table from the catalog"
)

POSITION = "lakefeed cannot decode the record at topic %s, partition %d, offset %d"
"""How the message of ``raise_error`` about a record begins, as a format for Spark's ``format_string``."""

NO_HOUR = "lakefeed finds no hour for Iceberg in "
"""How the message about a time begins that Iceberg's transform ``hours`` cannot represent."""

UNKNOWN_SCHEMA = "unknown schema id "
"""The beginning of the reason for refusing a record whose schema id is not in the registry (``Registry.java``)."""

BAD_TIMESTAMP_REASON = "timestamp %d ms is out of range: nanoseconds sent as milliseconds?"
"""The reason for refusing a record whose timestamp Spark cannot represent."""

BAD_TIMESTAMP_PATTERN = r"^timestamp (-?\d+) ms is out of range"
"""Matches ``BAD_TIMESTAMP_REASON``; the group is the timestamp."""

_DECODE = re.compile(
    r"lakefeed cannot decode the record at (topic [\w.-]+, partition \d+, offset \d+): (.*?)(?: SQLSTATE: \w{5})?$",
    re.MULTILINE,
)
_REGISTRY = re.compile(r"lakefeed schema registry ([\w ]+): (.*?)(?: SQLSTATE: \w{5})?$", re.MULTILINE)

_STORE_REFUSES = AccessDenied(
    "the S3 store refuses the credentials",
    hint="check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what that key may do",
)
_SERVER_FAILS = Unreachable(
    "the catalog or the S3 store answers with an error",
    hint="read the log of the server that the message names",
)

# By regular expression for Spark's message, the error to raise instead; the first expression that matches decides.
KNOWN: dict[str, LakefeedError] = {
    r"(?:ClassNotFoundException|NoClassDefFoundError): io[./]lakefeed[./]": ConfigError(
        "Spark does not have lakefeed's jar, or has the jar of another version",
        hint="install lakefeed again (in a clone: make jvm); with spark-submit, pass the settings that "
        "'lakefeed deploy conf' prints",
    ),
    r"software\.amazon\.msk\.auth\.iam\.\w+": ConfigError(
        "Spark has no jar for Amazon MSK's login by IAM",
        hint="add software.amazon.msk:aws-msk-iam-auth to spark.jars.packages, or its jar to spark.jars (block spark)",
    ),
    # "Race while writing batch" is from Spark's file sink, which keeps a log of its batches.
    r"(?:CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming queries are|Race while writing batch)": CheckpointInUse(
        "another driver works on the same checkpoint",
        hint="stop the other run of this pipeline; two runs cannot share a checkpoint",
    ),
    # Spark raises this in a feed's first batch if another driver has already written state to the checkpoint.
    r"STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY": CheckpointInUse(
        "another driver works on the same checkpoint, or its folder has files of another query",
        hint="stop the other run of this pipeline; if there is none, name a new location for the checkpoint",
    ),
    # Spark raises this at a start or after a batch, when it reads its log of offsets.
    r"batch \d+ doesn't exist": CheckpointInUse(
        "an entry of the checkpoint is gone: another driver works on the same checkpoint, or files of it were deleted",
        hint="stop the other run of this pipeline, if there is one, then start this run again",
    ),
    r"STREAMING_REAL_TIME_MODE": ConfigError(
        "Spark cannot run this query in real time",
        hint="trigger: 1 second runs the query in batches; the JVM's log names the operator that has no real-time mode",
    ),
    r"lakefeed refuses the commit: another driver has taken over": DriverReplaced(TAKEN_OVER, hint=ONE_PLACE),
    r"lakefeed refuses the commit: (?!.*are dead letters)": CheckpointMismatch(
        "the commit was refused; no row of the batch is visible", hint="lakefeed verify shows what the table has"
    ),
    r"AppendWriteException: [\w.]+: Cannot write value as decimal": RowsRefused(
        "Iceberg cannot store a row's partition: truncate rounds a decimal down, and the result has too many digits",
        hint="partition by another transform, or make such rows dead letters by a rule in expect",
    ),
    NO_HOUR: RowsRefused(
        "the table is partitioned by hours, and Iceberg cannot represent the hour of a time after the year 246953",
        hint="partition by days, or make such rows dead letters by a rule in expect",
    ),
    r"\ASpark does not support \w+ fields": ConfigError(
        "the table has a column of a type that Spark cannot read or write",
        hint="land in another table, or drop the column: ALTER TABLE … DROP COLUMN, with a tool that supports the type",
    ),
    r"FATAL: (?:password authentication failed|role .* does not exist|no pg_hba)": AccessDenied(
        "the catalog's database refuses the user or the password", hint="check catalogs.<name>.username and password"
    ),
    r"FATAL: database .* does not exist": ResourceMissing(
        "the catalog's database server has no such database", hint="create it, or correct catalogs.<name>.uri"
    ),
    r"NotAuthorizedException|ForbiddenException: |RESTException: [^\n]*\b419\b": AccessDenied(
        "the REST catalog refuses the login", hint="check catalogs.<name>.credential or token; a token may have expired"
    ),
    r"(?:UnknownTopicOrPartition|This server does not host this topic-partition)": ResourceMissing(
        "a topic of the pipeline no longer exists", hint="lakefeed topics list shows the cluster's topics"
    ),
    r"(?:No space left on device|Disk quota exceeded|SQLITE_FULL)": JobFailed(
        "the disk is full",
        hint="free space on the disks of warehouse, checkpoint and spark.local.dir, then start the feed again",
    ),
    # Match this before the answers of an S3 store: Java's AccessDeniedException for files has the same name as S3's.
    (
        r"(?:\((?:Permission denied|Operation not permitted|Read-only file system)\)|"
        r"nio\.file\.AccessDeniedException: /|SQLITE_READONLY)"
    ): FileDenied(
        "a file cannot be written",
        hint="give this process's user write access, or correct warehouse and checkpoint; then start the feed again",
    ),
    r"(?:File |Location does not exist: )[^\n]*\.metadata\.json": JobFailed(METADATA_GONE, hint=BRING_BACK),
    r"(?:NoSuchBucket|UnknownStoreException)": ResourceMissing(
        "the S3 bucket does not exist",
        hint="create the bucket, or correct checkpoint, sink and warehouse; lakefeed check --connect names it",
    ),
    r"(?:InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|Status Code: 403)": _STORE_REFUSES,
    # Here the server has answered with an error; errors of connections follow below.
    (
        r"(?:SlowDown|Status Code: (?:5\d\d|429)|ServiceUnavailableException|ServiceFailureException|"
        r"CommitStateUnknownException|RESTException: (?:Error occurred|[^\n]*\b(?:5\d\d|429)\b)|Service Unavailable|"
        r"Bad Gateway)"
    ): _SERVER_FAILS,
    r"iceberg\.exceptions\.(?:BadRequest|NoSuchTable|REST|UnprocessableEntity)Exception: ": JobFailed(
        "the REST catalog refuses a change of the table",
        hint="read the catalog's log, and try lakefeed check --connect",
    ),
    r"(?:the database system is (?:starting up|shutting down|in recovery)|terminating connection due to)": Unreachable(
        "the catalog's database does not answer", hint="check that the database at catalogs.<name>.uri runs"
    ),
    r"(?:some data may have been lost|KAFKA_DATA_LOSS|OffsetOutOfRange|LogTruncation)": RecordsLost(
        "the topic no longer holds records that the feed has not read: their retention has ended, or the topic was "
        "recreated",
        hint="start the feed again: it reports the number of lost records. lakefeed run pipeline.yaml --accept-loss "
        "resumes without them, and records the gap in the table's ledger",
    ),
    (
        r"(?:TimeoutException.*(?:node assignment|metadata|listTopics|describeTopics|listOffsets|position for)|"
        r"NotLeaderOrFollowerException|LeaderNotAvailableException|no record came from offset \d+|"
        r"kafka\.common\.errors\.(?:DisconnectException|TimeoutException|NetworkException)|"
        r"Failed to create new KafkaAdminClient|No resolvable bootstrap urls)"
    ): BrokerUnreachable(
        "no Kafka broker answers", hint="check source.kafka.bootstrap_servers and that the broker runs"
    ),
    r"(?:Connection refused|UnknownHostException|ConnectException|Unable to execute HTTP request)": Unreachable(
        "a server that the pipeline needs does not answer", hint="lakefeed check --connect shows which server"
    ),
}
_FROM_SPARK_ITSELF = (ConfigError, CheckpointInUse, RecordsLost)
"""Errors whose patterns match only Spark's own messages, so that they apply even if a record caused the exception."""


def translate(error: BaseException) -> LakefeedError:
    """Return lakefeed's error for an exception of PySpark or of Java."""
    if isinstance(error, LakefeedError):
        return error
    if (precise := decode_error_of(error) or registry_error_of(error) or _store_answer(error)) is not None:
        return precise
    text = str(error)
    # A message about a failed row has values of the record, which may look like a server's or a driver's error.
    is_of_record = cause_in_data(error) is not None
    for pattern, known in {**KNOWN, **_failures_of_sources()}.items():
        if is_of_record and not isinstance(known, _FROM_SPARK_ITSELF):
            continue
        if match := re.search(pattern, text, re.DOTALL):
            line = without_values(_line_around(text, match.start())).removeprefix(": ")
            return type(known)(known.what, where=line, hint=known.hint)
    return JobFailed(
        "Spark stopped the job",
        where=without_values(_root_cause(text)),
        hint="set LAKEFEED_DEBUG=1 to see the stack trace, or read the JVM's log if a line above names it",
    )


def _failures_of_sources() -> dict[str, LakefeedError]:
    """Return the errors that sources of installed packages declare, by a regular expression for Spark's message."""
    from lakefeed.config.base import ConfigProblems
    from lakefeed.config.blocks import Source

    failures: dict[str, LakefeedError] = {}
    for name in Source.kinds():
        with suppress(ConfigProblems):
            settings = Source.installed_kind(name)
            failures |= {} if settings is None else settings.failures
    return failures


@contextmanager
def translating(known: Callable[[str], LakefeedError | None] = lambda text: None) -> Iterator[None]:
    """Raise lakefeed's errors instead of PySpark's in the ``with`` block; ``known`` may return a more precise error."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise known(str(error)) or translate(error) from error


@contextmanager
def quietly() -> Iterator[None]:
    """Keep PySpark from logging the stack traces of this thread's errors, which lakefeed reports in a sentence."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).addFilter(_is_loud)
    before = _is_loud(None)
    _threads.is_quiet = True
    try:
        yield
    finally:
        _threads.is_quiet = not before


_threads = threading.local()


def _is_loud(record: object) -> bool:
    """Return True unless this thread is in a block of ``quietly``, which silences only its own thread."""
    return not getattr(_threads, "is_quiet", False)


def decode_error_of(exception: BaseException) -> DecodeError | None:
    """Return the error for the record that has stopped an action or a query; None for any other cause."""
    for text in _texts(exception):
        if match := _DECODE.search(text):
            return stopped_at(f"{match[1]}: {match[2]}")
    return None


NO_KEY = "the key column"
"""How the reason for refusing a record with a null key begins."""


def stopped_at(record: str) -> DecodeError:
    """Return the error for a record that stops a job, given as ``topic …, partition …, offset …: why``."""
    where, _, why = record.partition(": ")
    hint = "compare the record with the declared format; with dead_letters in the pipeline file the feed continues"
    if re.match(BAD_TIMESTAMP_PATTERN, why):
        hint = "with dead_letters the feed continues; with decode.on_bad_timestamp: keep, the record's time is null"
    if why.startswith(NO_KEY):
        hint = (
            "with dead_letters the feed continues; a rule in expect can skip such records; tombstones need decode.key"
        )
        return DecodeError(f"A record cannot be landed: {why}", where=where, hint=hint)
    return DecodeError(f"A record cannot be decoded: {why}", where=where, hint=hint)


def registry_error_of(exception: BaseException) -> LakefeedError | None:
    """Return Unreachable or AccessDenied if the schema registry has stopped the job; None for any other cause."""
    for text in _texts(exception):
        if match := _REGISTRY.search(text):
            kind = AccessDenied if match[1] == "refuses the credentials" else Unreachable
            hint = "when the registry answers, start the feed again: it resumes at the same offsets"
            error = kind(f"The schema registry {match[1]}", where=match[2], hint=hint)
            # No retry if the registry did not answer, because the tasks have already waited for it.
            error.passes = match[1] != "does not answer"
            return error
    return None


# Exceptions of files, networks, stores, memory and Spark's scheduler, which no record can cause.
_WORLD = re.compile(
    r"(?:java\.(?:io|net|sql|nio\.file|nio\.channels)|javax\.net|software\.amazon|io\.lakefeed\.\w+\.StreamFailure$|"
    r"org\.apache\.(?:kafka|hadoop|iceberg\.(?:exceptions|jdbc)))\.|RegistryException|Timeout|Interrupted|Refused|"
    r"FetchFailed|RuntimeIO|TaskKilled|NotFound|(?:Memory|Linkage|Internal|NoSuch\w+|ClassDef\w*)Error|spark\.SparkException$"
)


def cause_in_data(error: BaseException) -> str | None:
    """Return class and message of a failed task's deepest exception if a row's data caused it; otherwise None.

    Only the exceptions' classes decide, because a message may contain any text of a record.
    """
    thrown = list(_thrown(error))
    classes = [name for name, _ in thrown]
    message = str(thrown[-1][1].getMessage()) if thrown else ""
    text = f"{classes[-1]}: {message}" if thrown else ""
    if "File name too long" in message and text.startswith("java.io."):
        return text
    # Spark wraps a task's exception in a SparkException. One without a cause means that the scheduler gave up.
    world = [name for name in classes[:-1] if not name.endswith("SparkException")] + classes[-1:]
    return None if not classes or any(_WORLD.search(name) for name in world) else text


def _thrown(error: BaseException) -> Iterator[tuple[str, Any]]:
    """Yield class name and object of each Java exception behind an error, from the outermost to the deepest cause."""
    thrown: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while thrown is not None:
        yield str(thrown.getClass().getName()), thrown
        thrown = thrown.getCause()


def _store_answer(error: BaseException) -> LakefeedError | None:
    """Return the error for the HTTP status of an S3 store, if the exception comes from the S3 client."""
    for name, thrown in _thrown(error):
        if name.startswith("software.amazon.awssdk.services.s3."):
            status = int(thrown.statusCode())
            if status not in (403, 429, *range(500, 600)):
                return None
            known = _STORE_REFUSES if status == 403 else _SERVER_FAILS
            return type(known)(known.what, where=without_values(f"{name}: {thrown.getMessage()}"), hint=known.hint)
    return None


def _texts(exception: BaseException) -> Iterator[str]:
    """Yield the messages of an exception and of its causes, each once, even if the causes form a cycle."""
    visited: set[int] = set()
    current: BaseException | None = exception
    while current is not None and id(current) not in visited:
        visited.add(id(current))
        yield str(current)
        current = current.__cause__ or current.__context__


def _root_cause(text: str) -> str:
    causes = re.findall(r"Caused by: (.*?)(?=\n\s*at |\nCaused by: |\Z)", text, re.DOTALL)
    if causes:
        return str(causes[-1])
    # The second line of a Py4J error is Java's message.
    own = re.sub(r"\AAn error occurred while calling [^\n]*\n: ", "", text.lstrip())
    end = re.search(r"\n\nJVM stacktrace:|\n\s*at ", own)
    return own[: end.start()] if end else own


def _line_around(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return text[start : end if end >= 0 else len(text)].strip()[:500]
