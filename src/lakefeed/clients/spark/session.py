"""Create the SparkSession: the only place that writes ``spark.*`` keys and adds jars.

``settings`` returns all settings without secrets; ``lakefeed deploy conf`` prints them. Secrets are set on the running
session, because PySpark passes its configuration to the JVM on a command line that ``ps`` shows.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.clients.environment import default_connections
from lakefeed.clients.spark import cluster, driver_jvm, numpy_values
from lakefeed.clients.spark.connect import CLASSIC, require_classic_mode
from lakefeed.clients.spark.errors import translating
from lakefeed.clients.spark.python_files import executor_settings
from lakefeed.clients.spark.signals import python_keeps_its_handler
from lakefeed.clients.spark.start_checks import StartChecks
from lakefeed.clients.spark.storage import (
    LOCAL_FILES,
    catalog_settings,
    make_folders,
    require_own_folder,
    storage_settings,
)
from lakefeed.config import secrets, trust
from lakefeed.config.addresses import is_loopback
from lakefeed.errors import ConfigError, MissingExtra
from lakefeed.lazy import spark_errors
from lakefeed.messages.redaction import HIDDEN

if TYPE_CHECKING:
    from pydantic import SecretStr
    from pyspark.sql import SparkSession

    from lakefeed.config.connections import Connections

# Settings that are lists, with their separators; a user's values are appended to lakefeed's.
_LISTS = {
    "spark.jars": ",",
    "spark.driver.extraClassPath": os.pathsep,
    "spark.driver.extraJavaOptions": " ",
    "spark.sql.extensions": ",",
    "spark.plugins": ",",
    "spark.archives": ",",
    "spark.executorEnv.PYTHONPATH": os.pathsep,
    "spark.redaction.regex": "|",
    "spark.sql.redaction.options.regex": "|",
    "spark.redaction.string.regex": "|",
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
RETAINED_TASKS = 10_000
NOTEBOOKS = {"ipykernel", "marimo"}
"""A process that has imported one of these packages runs a notebook."""
# Five times the JVM's default thresholds: in a run of seconds, Java's second compiler would compile code that hardly
# runs again (docs/design/fast-path.md).
COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=25000 -XX:Tier4MinInvocationThreshold=3000 -XX:Tier4CompileThreshold=75000 "
    "-XX:Tier4BackEdgeThreshold=200000"
)
# The parallel garbage collector takes less time and memory than Java's default one: records live for milliseconds, and
# pauses do not harm a feed. MaxHeapFreeRatio limits the heap to three times its objects; otherwise the heap grows in a
# long run (docs/design/fast-path.md).
COLLECTOR = "-XX:+UseParallelGC -XX:MaxHeapFreeRatio=65"
_ANY_COLLECTOR = re.compile(r"-XX:[+]Use\w+GC\b")


def settings(
    name: str = "lakefeed",
    *,
    connections: Connections | None = None,
    master: str | None = None,
    secret_keys: Iterable[str] = (),
) -> dict[str, str]:
    """Return a session's settings without secrets; the arguments are those of ``session``.

    If the master is not ``local``, Spark sends the jars to the executors.
    """
    connections = connections or default_connections()
    master = master or "local[*]"
    return {
        **_class_path(connections, local=cluster.is_local(master)),
        **cluster.secured(master),
        **_session_settings(name, connections, master, secret_keys),
    }


def _session_settings(name: str, connections: Connections, master: str, secret_keys: Iterable[str]) -> dict[str, str]:
    """Return the settings that take effect even in a JVM that spark-submit has started."""
    pattern = secrets.pattern({*secrets.keys_of(connections), *secret_keys})
    return {
        "spark.master": master,
        "spark.app.name": name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Limit the data that the driver stores for Spark's UI, even if the UI is off. Spark's limits are ten times as
        # large, and the plan of a single batch may have hundreds of columns.
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "100",
        "spark.ui.retainedTasks": str(RETAINED_TASKS),
        "spark.sql.ui.retainedExecutions": "100",
        "spark.redaction.regex": pattern,
        "spark.sql.redaction.options.regex": f"{pattern}|url",
        # Redact secrets in plans and SQL, which Spark does not do by default.
        "spark.redaction.string.regex": secrets.IN_TEXT,
        "spark.speculation": "false",
        "spark.sql.session.timeZone": "UTC",
        # Keep Spark from replacing ${env:NAME} in SQL by variables of the driver's environment.
        "spark.sql.variable.substitute": "false",
        # lakefeed's class writes a file of the checkpoint with one PUT, and lets only one driver write:
        # docs/jvm-module.md.
        "spark.sql.streaming.checkpointFileManagerClass": "io.lakefeed.checkpoint.ObjectStoreCheckpointFileManager",
        # The store has checksums; Spark's would cost a file and a listing per file of state. RocksDB writes only
        # changes: docs/s3-requests.md.
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # JvmPlugin gives executors the driver's certificate authorities and the encoder of Parquet files, and counts
        # their S3 requests. FeedMetrics gives the feeds' numbers to Spark's metric system in the driver.
        "spark.plugins": "io.lakefeed.JvmPlugin,io.lakefeed.metrics.FeedMetrics",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,"
        "io.lakefeed.kafka.UncopiedRows",
        **storage_settings(connections),
        **catalog_settings(connections),
    }


def pools() -> dict[str, str]:
    """Return the settings of scheduler pools in which maintenance jobs get only the cores that batches do not use."""
    return {
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": Path(str(files("lakefeed") / "maintenance" / "pools.xml")).as_uri(),
    }


def session(
    name: str = "lakefeed",
    *,
    connections: Connections | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log_file: str | Path | None = None,
    secret_keys: Iterable[str] = (),
    ui_host: str | None = None,
    folder: str | Path | None = None,
    modules: Sequence[str] = (),
    checks: StartChecks | None = None,
    on_disk: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a SparkSession with lakefeed's jars, S3A, the Iceberg catalogs and safe defaults.

    If a session already runs, the catalogs and credentials are added to it, and it is returned. It must have been
    started with the settings that ``lakefeed deploy conf`` prints.

    Args:
        name: the application's name.
        connections: store and catalogs. Default: from the environment (AWS_ENDPOINT_URL_S3, AWS_REGION, the AWS
            key variables, LAKEFEED_CATALOG_URI, LAKEFEED_WAREHOUSE), else the local stack that is running.
        master: Spark master. Default: ``local[*]``.
        conf: further Spark settings. They override lakefeed's; lists (jars, class path, extensions, plugins) are
            appended to lakefeed's.
        log_file: the file for the JVM's log. Default: this process's stderr; in a notebook, whose cells would show the
            log, the file ``log_path`` of the application's name.
        secret_keys: settings and options to hide in Spark's UI and event log, whatever their names.
        ui_host: the address that Spark's UI listens on, if ``conf`` turns it on. Default with a local master: only
            this machine.
        folder: the folder of the ``modules``.
        modules: Python modules with functions that run on executors. A cluster's executors get the modules, and the
            files of the folder and the packages that the modules import; the executors' Python must have the driver's
            version.
        checks: checks to run while the JVM starts; if one fails, the JVM is ended.
        on_disk: folders of this machine, by setting; executors on other machines do not have them.

    Raises:
        MissingExtra: PySpark is not installed.
        JavaError: there is no Java, or Spark does not support its version.
        DownloadError: a jar could not be fetched.
        ConfigError: a session of Spark Connect or without lakefeed's jars runs already; the secret of a standalone
            cluster is missing; executors have another version of Python; or ``on_disk`` is used on a cluster.
        WorldError: the cluster starts no executor.

    Example:
        >>> import lakefeed as lf
        >>> lf.session("explore").range(3).count()
        3
    """
    if find_spec("pyspark") is None:
        raise MissingExtra.of("pyspark", "spark", "lakefeed.session()")
    log_file = None if log_file is None else Path(log_file).expanduser()
    folder = None if folder is None else Path(folder)
    require_classic_mode(conf or {})
    connections = connections or default_connections()
    make_folders(connections)
    spark = running()
    if spark is None:
        if cluster.is_submitted():
            # spark-submit has already set master, class path, memory and the cluster's secret.
            given = cluster.submitted_settings()
            master = given.get("spark.master", master or "local[*]")
            requested = _session_settings(name, connections, master, secret_keys)
            given = {key: value for key, value in given.items() if _fixed_at_launch(key)}
        else:
            driver_jvm.require_java()
            requested = settings(name, connections=connections, master=master, secret_keys=secret_keys)
            given = {}
        travels = not cluster.is_local({**requested, **(conf or {})}["spark.master"]) and bool(modules)
        if travels:
            requested |= executor_settings(folder, modules)
        whole = {**with_own(requested, conf or {}), **given}
        cluster.require_one_machine(whole["spark.master"], on_disk or {})
        if not cluster.is_submitted():
            whole = cluster.require_secret(whole)
            cluster.require_hadoop_configuration(whole["spark.master"])
            if cluster.is_local(whole["spark.master"]):
                require_own_folder(whole)
                # Without this, Spark would use the first python3 on PATH, which may lack pandas or be another version.
                os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            cluster.use_python(whole)
        # ``shown`` has no secrets, because other users can read the JVM's command line. The running JVM gets the
        # secrets.
        environment = _ui_environment(whole, ui_host)
        if log_file is None and NOTEBOOKS & sys.modules.keys():
            log_file = log_path(name)
        driver_jvm.start(secrets.shown(whole), log_file=log_file, environment=environment, checks=checks)
        from pyspark.sql import SparkSession

        builder = SparkSession.Builder()
        # Set these in the application, too: otherwise Spark's event log would not hide a job's settings of the same
        # names.
        hidden = dict.fromkeys(_catalog_secrets(connections), HIDDEN)
        for key, value in {**hidden, **whole, **CLASSIC}.items():
            builder = builder.config(key, value)
        numpy_values.skip_test_modules()
        with python_keeps_its_handler(), translating(cluster.refusal):
            _install_trust()
            cluster.require_resource_manager(whole)
            spark = builder.getOrCreate()
        if not cluster.is_local(whole["spark.master"]):
            try:
                cluster.require_executors(spark)
                if travels:
                    cluster.require_same_python(spark)
            except BaseException:
                spark.stop()
                raise
    else:
        for key, value in _session_settings(name, connections, "", secret_keys).items():
            if key.startswith("spark.sql.catalog.") or key == "spark.sql.redaction.options.regex":
                spark.conf.set(key, value)
        for key, value in storage_settings(connections).items():
            _hadoop_configuration(spark).set(key.removeprefix("spark.hadoop."), value)
    _require_jars(spark)
    _install_trust()
    _set_secrets(spark, connections)
    return spark


def _ui_environment(conf: Mapping[str, str], host: str | None) -> dict[str, str]:
    """Return the variable with the address that Spark's UI listens on; without it, the UI is open to the whole network.

    Spark has no setting for the UI's address. Executors connect to the driver at the same address, so on a cluster this
    cannot be the address of the loopback interface.
    """
    if conf["spark.ui.enabled"].lower() != "true" or "SPARK_LOCAL_IP" in os.environ:
        return {}
    if not cluster.is_local(conf["spark.master"]):
        if host is not None and is_loopback(host):
            what = f"on {conf['spark.master']} Spark's UI listens on the driver's address, which executors must reach"
            hint = "set spark_ui.host to the driver's address, and a filter with a login in spark.ui.filters"
            raise ConfigError(what, where="spark_ui.host", hint=hint)
        return {} if host is None or set(host) <= {"0", ".", ":"} else {"SPARK_LOCAL_IP": host}
    return {"SPARK_LOCAL_IP": host or "127.0.0.1"}


def with_own(requested: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Merge the user's settings into lakefeed's: lists are appended to lakefeed's, other values replace lakefeed's."""
    options = requested.get(_JAVA_OPTIONS, "")
    if any(_ANY_COLLECTOR.search(own.get(key, "")) for key in (_JAVA_OPTIONS, "spark.driver.defaultJavaOptions")):
        # If the user names a garbage collector, leave out lakefeed's, because Java does not start with two.
        requested = {**requested, _JAVA_OPTIONS: options.removesuffix(f" {COLLECTOR}")} if options else requested
    lists = {
        key: f"{requested[key]}{sign}{own[key]}" for key, sign in _LISTS.items() if key in requested.keys() & own.keys()
    }
    return {**requested, **own, **lists}


def activate(spark: SparkSession) -> None:
    """Make a session this thread's active one, in which Spark and Iceberg look up catalogs and settings.

    A thread that Python starts has no active session.
    """
    own: Any = spark
    own._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(own._jsparkSession)


def copy_of(spark: SparkSession) -> SparkSession:
    """Return a session with the same catalogs and settings but its own views, for another thread."""
    # newSession() would lack the catalogs and credentials that were set on the running session.
    original: Any = spark
    return type(spark)(spark.sparkContext, original._jsparkSession.cloneSession())


def running() -> SparkSession | None:
    """Return the thread's active session, or else the process's default session; None without one that still runs."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    try:
        active = SparkSession.active()
    except spark_errors.PySparkRuntimeError:
        return None
    context: Any = active.sparkContext
    return active if context._jsc is not None else None  # A stopped session has no context.


def log_path(name: str) -> Path:
    """Return the path, in the per-user cache, of the JVM's log for a command."""
    from lakefeed.clients.spark.jars import cache_directory

    return cache_directory() / "logs" / f"{name}.log"


def class_path(connections: Connections) -> list[Path]:
    from lakefeed.clients.spark import jars, jvm
    from lakefeed.config.blocks import InstalledSource

    groups = ["spark", *jars.read_lock().sink_groups]
    if any(catalog.type == "glue" for catalog in connections.catalogs.values()):
        groups.append("glue")
    if isinstance(connections.source, InstalledSource):
        groups += connections.source.jar_groups
    return [jvm.jar(), *jvm.installed_jars(), *jars.fetch(groups)]


def _class_path(connections: Connections, *, local: bool) -> dict[str, str]:
    paths = class_path(connections)
    if local:
        # Do not set spark.jars: this JVM is the executor, too, and would copy 80 MB of jars for itself.
        return {
            "spark.driver.extraClassPath": os.pathsep.join(map(str, paths)),
            "spark.driver.memory": "2g",
            _JAVA_OPTIONS: COMPILE_LATER if _environment_has_collector() else f"{COMPILE_LATER} {COLLECTOR}",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            **LOCAL_FILES,
        }
    return {"spark.jars": ",".join(path.as_uri() for path in paths)}


def _environment_has_collector() -> bool:
    return any(_ANY_COLLECTOR.search(os.environ.get(name, "")) for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"))


def _fixed_at_launch(key: str) -> bool:
    return key in {"spark.master", "spark.jars", "spark.driver.memory"} or key.endswith("extraClassPath")


def _install_trust() -> None:
    """Give this process's certificates to the JVM; call this before Spark's event log opens its first connection."""
    from pyspark import SparkContext

    if (own := trust.current()) == trust.Certificates():
        return
    SparkContext._ensure_initialized()
    java: Any = SparkContext._jvm
    java.io.lakefeed.tls.Trust.install(own.authorities, own.certificate, own.key.get_secret_value())


def _set_secrets(spark: SparkSession, connections: Connections) -> None:
    """Set secrets in the running JVM, so that neither its command line nor the UI's SparkConf contains them."""
    for key, secret in _store_keys(connections, ("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token")):
        _hadoop_configuration(spark).set(key, secret.get_secret_value())
    for key, secret in _catalog_secrets(connections).items():
        spark.conf.set(key, secret.get_secret_value())


def _catalog_secrets(connections: Connections) -> dict[str, SecretStr]:
    keys = dict(_store_keys(connections, ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")))
    secrets_by_key: dict[str, SecretStr] = {}
    for name, catalog in connections.catalogs.items():
        # A catalog that vends keys sends the keys for each table; Iceberg must not mix them with the store's keys.
        shared = {} if catalog.vended_credentials or catalog.folder is not None else keys
        own = shared | catalog.secrets()
        secrets_by_key |= {f"spark.sql.catalog.{name}.{key}": secret for key, secret in own.items()}
    return secrets_by_key


def _store_keys(connections: Connections, names: tuple[str, str, str]) -> Iterator[tuple[str, SecretStr]]:
    s3 = connections.s3
    for name, secret in zip(names, (s3.access_key, s3.secret_key, s3.session_token), strict=True):
        if secret is not None:
            yield name, secret


def _hadoop_configuration(spark: SparkSession):  # type: ignore[no-untyped-def]  # a py4j object
    return spark.sparkContext._jsc.hadoopConfiguration()


def _require_jars(spark: SparkSession) -> None:
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    missing = [
        name
        for name in (
            "io/lakefeed/decode/DecodeCatalog.class",
            "org/apache/iceberg/spark/SparkCatalog.class",
            "org/apache/hadoop/fs/s3a/S3AFileSystem.class",
        )
        if loader.getResource(name) is None
    ]
    if missing:
        raise ConfigError(
            "the running Spark session does not have lakefeed's jars",
            where=f"not on its class path: {', '.join(name.removesuffix('.class') for name in missing)}",
            hint="stop that session and call lakefeed.session(), or start Spark with the settings that "
            "'lakefeed deploy conf' prints",
        )
