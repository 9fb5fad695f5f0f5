"""The SparkSession: the only place that writes ``spark.*`` keys and adds jars.

``settings`` says everything that is not secret, as ``lakefeed deploy conf`` prints it. Secrets are set on the running
session instead, because PySpark hands its configuration to the JVM on a command line that ``ps`` shows.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.clients.environment import default_connections
from lakefeed.clients.spark import cluster, driver_jvm, kept_records, numpy_values
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

# Settings that hold several: what a user adds stands behind what lakefeed needs.
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
NOTEBOOKS = {"ipykernel", "marimo"}
"""Packages that are imported where a notebook runs."""
# Five times the JVM's own: a run of seconds ends before the second compiler has looked at what it never needs again
# (docs/design/fast-path.md).
COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=25000 -XX:Tier4MinInvocationThreshold=3000 -XX:Tier4CompileThreshold=75000 "
    "-XX:Tier4BackEdgeThreshold=200000"
)
# Records live for milliseconds, and no one waits for a pause: it takes less time and less memory than Java's default.
# What lives longer may have three times its size of heap, so that a long run does not fill all of it
# (docs/design/fast-path.md).
COLLECTOR = "-XX:+UseParallelGC -XX:MaxHeapFreeRatio=65"
_ANY_COLLECTOR = re.compile(r"-XX:[+]Use\w+GC\b")


def settings(
    name: str = "lakefeed",
    *,
    connections: Connections | None = None,
    master: str | None = None,
    secret_keys: Iterable[str] = (),
) -> dict[str, str]:
    """Return Spark settings for lakefeed, without any secret.

    Arguments are those of ``session``. On any master but ``local`` the jars travel to the executors.
    """
    connections = connections or default_connections()
    master = master or "local[*]"
    return {
        **_class_path(connections, local=cluster.is_local(master)),
        **cluster.secured(master),
        **_session_settings(name, connections, master, secret_keys),
    }


def _session_settings(name: str, connections: Connections, master: str, secret_keys: Iterable[str]) -> dict[str, str]:
    """Return what a session sets whatever started its JVM."""
    pattern = secrets.pattern({*secrets.keys_of(connections), *secret_keys})
    return {
        "spark.master": master,
        "spark.app.name": name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **kept_records.SETTINGS,
        "spark.redaction.regex": pattern,
        "spark.sql.redaction.options.regex": f"{pattern}|url",
        # Of plans and of SQL: Spark has no pattern for those by itself.
        "spark.redaction.string.regex": secrets.IN_TEXT,
        "spark.speculation": "false",
        "spark.sql.session.timeZone": "UTC",
        # Else Spark puts variables of the driver's environment into SQL that has ${env:NAME} in it.
        "spark.sql.variable.substitute": "false",
        # One PUT for each checkpoint entry, and two drivers never on one checkpoint: docs/jvm-module.md.
        "spark.sql.streaming.checkpointFileManagerClass": "io.lakefeed.checkpoint.ObjectStoreCheckpointFileManager",
        # The store has checksums of its own, and Spark's are a file and a listing beside each file of state; of RocksDB
        # only what has changed: docs/s3-requests.md.
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # In executors: the driver's trust, the encoder of Parquet files, the counts of S3 requests; on the driver: the
        # feeds' numbers for Spark's metric system.
        "spark.plugins": "io.lakefeed.JvmPlugin,io.lakefeed.metrics.FeedMetrics",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,"
        "io.lakefeed.kafka.UncopiedRows",
        **storage_settings(connections),
        **catalog_settings(connections),
    }


def pools() -> dict[str, str]:
    """Return settings that give maintenance jobs what a feed's batches leave, in the same application."""
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

    A session that already runs is used as it is, with the catalogs and credentials added to it; it must have
    been started with the settings that ``lakefeed deploy conf`` prints.

    Args:
        name: application name.
        connections: store and catalogs. Default: from the environment (AWS_ENDPOINT_URL_S3, AWS_REGION, the AWS
            key variables, LAKEFEED_CATALOG_URI, LAKEFEED_WAREHOUSE), else the local stack that is running.
        master: Spark master. Default: ``local[*]``.
        conf: further Spark settings. They win over lakefeed's, and are added to it where a setting is a list: jars,
            class path, extensions, plugins.
        log_file: where the JVM writes its log. Default: this process's stderr; in a notebook, whose cells would show
            that, the file ``log_path`` of its name.
        secret_keys: settings and options that Spark's UI and event log are not to show, whatever their names.
        ui_host: the address that Spark's UI listens on, if ``conf`` turns it on. Default: on a local master this
            machine alone.
        folder: where the ``modules`` are.
        modules: Python modules of functions that run on executors. On a cluster they, all files of the folder and all
            packages that they import travel to the executors, whose Python is compared with the driver's.
        checks: run beside the start of the JVM, and end it if they fail.
        on_disk: settings that name a folder of this machine, which executors on others do not have.

    Raises:
        MissingExtra: PySpark is not installed.
        JavaError: no Java, or one that Spark does not run on.
        DownloadError: a jar could not be fetched.
        ConfigError: a session without lakefeed's jars is already running, or one of Spark Connect; a standalone cluster
            without a secret; executors without the driver's version of Python; or a cluster with folders ``on_disk``.
        WorldError: the cluster starts no executor.

    Example:
        >>> import lakefeed as lf
        >>> lf.session("explore").range(3).count()
        3
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra.of("pyspark", "spark", "lakefeed.session()") from None
    log_file = None if log_file is None else Path(log_file).expanduser()
    folder = None if folder is None else Path(folder)
    require_classic_mode(conf or {})
    if checks is not None:
        checks.begin()

    connections = connections or default_connections()
    make_folders(connections)
    running = _running()
    if running is None:
        if cluster.is_submitted():
            # spark-submit has chosen master, class path, memory and the secret of the cluster: what it was given wins.
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
                # Else Python functions run in the first python3 of PATH, which need not have pandas, or be 3.11.
                os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            cluster.use_python(whole)
        builder = SparkSession.Builder()
        # Spark's event log has each job's settings, and hides only those that the application's settings have too.
        hidden = dict.fromkeys(_catalog_secrets(connections), HIDDEN)
        for key, value in {**hidden, **whole, **CLASSIC}.items():
            builder = builder.config(key, value)
        # PySpark sets what is left out here once the JVM runs: not on the command line that it is started with.
        environment = _ui_environment(whole, ui_host)
        if log_file is None and NOTEBOOKS & sys.modules.keys():
            log_file = log_path(name)
        driver_jvm.start(secrets.shown(whole), log_file=log_file, environment=environment, checks=checks)
        numpy_values.skip_test_modules()
        with python_keeps_its_handler(), translating(cluster.refusal):
            _install_trust()
            cluster.require_resource_manager(whole)
            running = builder.getOrCreate()
        if not cluster.is_local(whole["spark.master"]):
            try:
                cluster.require_executors(running)
                if travels:
                    cluster.require_same_python(running)
            except BaseException:
                running.stop()
                raise
    else:
        for key, value in _session_settings(name, connections, "", secret_keys).items():
            if key.startswith("spark.sql.catalog.") or key == "spark.sql.redaction.options.regex":
                running.conf.set(key, value)
        for key, value in storage_settings(connections).items():
            _hadoop_configuration(running).set(key.removeprefix("spark.hadoop."), value)
    _require_jars(running)
    _install_trust()
    _set_secrets(running, connections)
    return running


def _ui_environment(conf: Mapping[str, str], host: str | None) -> dict[str, str]:
    """Return the variable that says where Spark's UI listens: it has no setting, and without it is open to all.

    The variable is also the address that executors reach the driver at, so that a cluster cannot have it on loopback.
    """
    if conf["spark.ui.enabled"].lower() != "true" or "SPARK_LOCAL_IP" in os.environ:
        return {}
    if not cluster.is_local(conf["spark.master"]):
        if host is not None and is_loopback(host):
            what = f"on {conf['spark.master']} Spark's UI cannot be kept to this machine: its address is the driver's"
            hint = "set spark_ui.host to the driver's address, with a filter that has a login in spark.ui.filters"
            raise ConfigError(what, where="spark_ui.host", hint=hint)
        return {} if host is None or set(host) <= {"0", ".", ":"} else {"SPARK_LOCAL_IP": host}
    return {"SPARK_LOCAL_IP": host or "127.0.0.1"}


def with_own(requested: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Add the user's settings to lakefeed's: theirs win, or stand behind lakefeed's in a setting that is a list."""
    options = requested.get(_JAVA_OPTIONS, "")
    if any(_ANY_COLLECTOR.search(own.get(key, "")) for key in (_JAVA_OPTIONS, "spark.driver.defaultJavaOptions")):
        # Java refuses to start with two.
        requested = {**requested, _JAVA_OPTIONS: options.removesuffix(f" {COLLECTOR}")} if options else requested
    lists = {
        key: f"{requested[key]}{sign}{own[key]}" for key, sign in _LISTS.items() if key in requested.keys() & own.keys()
    }
    return {**requested, **own, **lists}


def activate(spark: SparkSession) -> None:
    """Make it the session of this thread.

    Spark and Iceberg look up catalogs and settings in the thread's session, and a thread of a driver's own has none.
    """
    own: Any = spark
    own._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(own._jsparkSession)


def copy_of(spark: SparkSession) -> SparkSession:
    """Return a session with the same catalogs and settings, and views of its own, for another thread."""
    # Not newSession(): that has neither the catalogs nor the credentials that were set on the running session.
    original: Any = spark
    return type(spark)(spark.sparkContext, original._jsparkSession.cloneSession())


def is_running() -> bool:
    """Check that a session runs in this process already, which ``session`` would take."""
    return "pyspark.sql" in sys.modules and _running() is not None


def _running() -> SparkSession | None:
    """Return the thread's active session, or else the process's: a new thread has no active one."""
    from pyspark.sql import SparkSession

    try:
        found = SparkSession.active()
    except spark_errors.PySparkRuntimeError:
        return None
    context: Any = found.sparkContext
    return found if context._jsc is not None else None  # Without one it is stopped.


def log_path(name: str) -> Path:
    """Return the file in the per-user cache where commands let the JVM write its log."""
    from lakefeed.clients.spark.jars import cache_directory

    return cache_directory() / "logs" / f"{name}.log"


def class_path(connections: Connections) -> list[Path]:
    """Return the jars that driver and executors need for these connections."""
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
        # One JVM: no need to copy 80 MB of jars to an "executor".
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
    """Let the JVM trust what this process does, before the first of its clients is opened: even the event log's."""
    from pyspark import SparkContext

    if (found := trust.current()) == trust.Certificates():
        return
    SparkContext._ensure_initialized()
    java: Any = SparkContext._jvm
    java.io.lakefeed.tls.Trust.install(found.authorities, found.certificate, found.key.get_secret_value())


def _set_secrets(spark: SparkSession, connections: Connections) -> None:
    """Give secrets to the running JVM: never on its command line, never in the SparkConf that the UI shows."""
    for key, secret in _store_keys(connections, ("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token")):
        _hadoop_configuration(spark).set(key, secret.get_secret_value())
    for key, secret in _catalog_secrets(connections).items():
        spark.conf.set(key, secret.get_secret_value())


def _catalog_secrets(connections: Connections) -> dict[str, SecretStr]:
    keys = dict(_store_keys(connections, ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")))
    found: dict[str, SecretStr] = {}
    for name, catalog in connections.catalogs.items():
        # Vended keys come with each table; ours beside them would be mixed with theirs.
        known = {} if catalog.vended_credentials or catalog.folder is not None else keys
        found |= {f"spark.sql.catalog.{name}.{key}": secret for key, secret in {**known, **catalog.secrets()}.items()}
    return found


def _store_keys(connections: Connections, names: tuple[str, str, str]) -> Iterator[tuple[str, SecretStr]]:
    """Yield the keys of the S3 store that are set, under these names."""
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
            "the Spark session that is running has not got lakefeed's jars",
            where=f"not on its class path: {', '.join(re.sub('[.]class$', '', name) for name in missing)}",
            hint="stop that session and call lakefeed.session(), or start Spark with the settings that "
            "'lakefeed deploy conf' prints",
        )
