"""Read the application to deploy from a pipeline file, with the variables that the pod will have."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from lakefeed.clients.spark.python_files import find_imports
from lakefeed.config.checks import function_modules, named_files
from lakefeed.config.connections import credentials_in
from lakefeed.config.loading.document import Remote
from lakefeed.config.loading.load import Reading, read
from lakefeed.config.models import PipelineConfig
from lakefeed.config.problem import Problem, errors_of, raise_first_error
from lakefeed.config.secrets import SECRET_KEY
from lakefeed.config.values import is_topic_name
from lakefeed.errors import ConfigError
from lakefeed.messages.pages import page_command
from lakefeed_deploy.settings import PIPELINE_FOLDER, PROBE_PORT, AppName, Deploy, Kubernetes

PIPELINE_FILE = "pipeline.yaml"
# The most bytes of all files: a ConfigMap may have 1 MiB, including the files' names.
_MOST_BYTES = 1_000_000
# Matches a pattern of topics that is only a prefix, because Kafka's ACLs support no other patterns.
_PREFIX = re.compile(r"((?:[A-Za-z0-9_-]|\\\.)+)\.[*+]")
# The manifest repeats the values of these settings, so this machine must know the values, too.
_REPEATED = (
    ("name",),
    ("source", "kafka", "topics"),
    ("source", "kafka", "monitoring_group"),
    ("dead_letters", "topic"),
    ("dashboard", "host"),
    ("dashboard", "port"),
    ("spark_ui",),
)


@dataclass(frozen=True, kw_only=True)
class TopicAccess:
    """The topics and the consumer group that the Kafka user may access; ``prefix`` replaces a pattern of topics."""

    read: tuple[str, ...] = ()
    prefix: str | None = None
    write: tuple[str, ...] = ()
    group: str | None = None


@dataclass(frozen=True, kw_only=True)
class Application:
    """A driver and its executors, independent of the operator.

    Attributes:
        name: the name of the application's objects.
        component: feed or producer.
        arguments: the arguments of the command that the driver runs.
        files: the files' texts by path, relative to the pipeline file's folder.
        restarts: whether a failed application is restarted.
        probe_port: the port for Kubernetes' probes and Prometheus, if the application has one.
        ports: further ports of the driver in the service, by name.
        topics: the topics that Strimzi creates.
        notes: warnings about the pipeline file.
    """

    name: str
    component: str
    settings: Kubernetes
    arguments: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    restarts: bool = True
    probe_port: int | None = None
    ports: Mapping[str, int] = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    access: TopicAccess = field(default_factory=TopicAccess)
    notes: tuple[str, ...] = ()

    @property
    def service_account(self) -> str:
        return self.settings.service_account or self.name

    @property
    def config_map(self) -> str | None:
        """The ConfigMap's name, with a digest of the files, so that pods of an older version keep their ConfigMap."""
        if not self.files:
            return None
        text = "\0".join(f"{path}\0{self.files[path]}" for path in sorted(self.files))
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def read_feed(path: Path, *, overrides: Sequence[str] = ()) -> Application:
    """Read the application that runs a pipeline file.

    Raises: ConfigError: the file has mistakes, given the pod's variables (all are listed), or contains a secret.
    """
    settings, reading, config = _read(path, overrides)
    for_run = [override for override in overrides if not override.startswith("deploy.")]
    arguments = ["run", f"{PIPELINE_FOLDER}/{PIPELINE_FILE}", "--exit-on-signal", "143", "--exit-when-replaced", "0"]
    arguments += ["--probe-port", str(PROBE_PORT)]
    arguments += [word for override in for_run for word in ("--set", override)]
    folder = path.absolute().parent
    files = {PIPELINE_FILE: path.read_text("utf-8-sig"), **_local_files(config, folder, settings)}
    sizes = {name: len(text.encode()) for name, text in files.items()}
    if (total := sum(sizes.values())) > _MOST_BYTES:
        what = f"the pipeline's files have {total:,} bytes, and a ConfigMap holds {_MOST_BYTES:,}"
        hint = "install the pipeline's Python modules in the image instead"
        raise ConfigError(what, where=max(sizes, key=lambda name: sizes[name]), hint=hint)
    app = Application(
        name=_name(settings, config),
        component="feed",
        settings=settings,
        arguments=tuple(arguments),
        files=files,
        probe_port=PROBE_PORT,
        ports=dict(_ports(config)),
        topics=_topics(config, settings),
        access=_access(config, settings),
        notes=tuple(str(problem) for problem in reading.problems),
    )
    _require_no_secret(app, reading.document.secrets)
    return app


def read_producer(
    path: Path, *, overrides: Sequence[str] = (), arguments: Sequence[str], topic: str, is_stream: bool
) -> Application:
    """Read the application that runs ``topics produce`` with these arguments, with the pods of the pipeline file.

    A producer that is not a stream is never restarted, because it would send its rows twice.
    """
    settings, reading, config = _read(path, overrides)
    if not is_topic_name(topic):
        hint = "use up to 249 letters, digits, '.', '_' and '-'"
        raise ConfigError(f"'{topic}' cannot name a topic", where="produce", hint=hint)
    for argument in arguments:
        key = argument.partition("=")[0]
        if SECRET_KEY.search(key) or credentials_in(argument) is not None:
            hint = "give passwords to the producer by environment variables: deploy.kubernetes.secret_env"
            raise ConfigError(f"the manifest would show '{key}', which may be a secret", where="produce", hint=hint)
    app = Application(
        name=f"{_name(settings, config)[: 40 - len('-producer')].rstrip('-')}-producer",
        component="producer",
        settings=settings,
        arguments=("topics", "produce", *arguments),
        restarts=is_stream,
        access=TopicAccess(write=(topic,)),
        notes=tuple(str(problem) for problem in reading.problems),
    )
    _require_no_secret(app, reading.document.secrets)
    return app


def _read(path: Path, overrides: Sequence[str]) -> tuple[Kubernetes, Reading, PipelineConfig]:
    """Read the deploy block, then the whole file with the environment that the block describes."""
    alone = read(path, overrides=overrides, environment=None)
    declared = alone.mistakes.config if alone.mistakes is not None else None
    block = None if declared is None else declared.block(Deploy)
    if block is None:
        raise_first_error(alone.problems)
        hint = f"write deploy: {{kubernetes: {{image: …}}}}; {page_command('deploy-on-kubernetes')} has a whole block"
        raise ConfigError("the pipeline file has no block deploy", where=str(path), hint=hint)
    if any(problem.key.startswith("deploy") for problem in errors_of(alone.problems)):
        raise_first_error(alone.problems)  # The second read needs a valid deploy block.
    hint = "the manifest must not depend on this machine: write the value, or give it with --set"
    _require_known(alone, path, places=(("deploy",),), hint=hint)
    settings = block.kubernetes
    remote = Remote(variables=frozenset(settings.secret_env), folders=tuple(settings.mounts))
    reading = read(path, overrides=overrides, environment=settings.env, remote=remote)
    if errors_of(reading.problems):
        raise_first_error([_for_the_pod(problem) for problem in reading.problems])
    assert reading.mistakes is not None  # Without errors, the whole text was parsed.
    assert reading.mistakes.config is not None  # Without errors, each unknown value has a replacement.
    hint = "the manifest contains the value: write it here, or put the variable into deploy.kubernetes.env"
    _require_known(reading, path, places=_REPEATED, hint=hint)
    return settings, reading, reading.config or reading.mistakes.config


def _for_the_pod(problem: Problem) -> Problem:
    """Return the problem; for an unset variable, name the pod, and the settings that set the variable."""
    if not problem.what.endswith("is not set"):
        return problem
    what = problem.what.replace("is not set", "is not set in the pod")
    hint = "add the variable to deploy.kubernetes.env, or to secret_env; or give a default: ${NAME:-value}"
    return Problem(**{**vars(problem), "what": what, "hint": hint})


def _require_known(reading: Reading, path: Path, *, places: tuple[tuple[str, ...], ...], hint: str) -> None:
    for place in sorted(reading.document.broken, key=str):
        variables = re.findall(r"\$\{(\w+)", reading.document.written.get(place, ""))
        if variables and any(place[: len(start)] == start for start in places):
            key = ".".join(map(str, place))
            raise ConfigError(
                f"{key}: the value of {variables[0]} is not known on this machine", where=str(path), hint=hint
            )


def _name(settings: Kubernetes, config: PipelineConfig) -> str:
    name = settings.name or config.name.lower().replace("_", "-").strip("-")
    try:
        return TypeAdapter(AppName).validate_python(name)
    except ValidationError:
        what = f"'{name}' cannot name Kubernetes objects: they have a-z, 0-9 and -, and at most 40 letters"
        raise ConfigError(what, where="name", hint="set deploy.kubernetes.name") from None


def _ports(config: PipelineConfig) -> Iterator[tuple[str, int]]:
    for key, block in config.added_blocks.items():
        if block.open_port == 0:
            raise ConfigError(
                "a Kubernetes service needs a fixed port", where=f"{key}.port", hint=f"write {key}.port: 8380"
            )
        if block.open_port is not None:
            yield key, block.open_port
    ui = config.spark_ui
    if ui is not None and not ui.is_local:
        if ui.port == 0:
            raise ConfigError(
                "a Kubernetes service needs a fixed port", where="spark_ui.port", hint="write spark_ui.port: 4040"
            )
        yield "spark-ui", ui.port


def _topics(config: PipelineConfig, settings: Kubernetes) -> tuple[str, ...]:
    if settings.strimzi is None:
        return ()
    if config.source.kafka is None and not _written_topics(config):
        hint = "remove the block strimzi"
        raise ConfigError("the feed reads and writes no topic", where="deploy.kubernetes.strimzi", hint=hint)
    if settings.strimzi.topics is not None:
        return tuple(settings.strimzi.topics)
    kafka = config.source.kafka
    read_topics = (kafka.topics or []) if kafka is not None else []
    return tuple(dict.fromkeys([*read_topics, *_written_topics(config)]))


def _written_topics(config: PipelineConfig) -> list[str]:
    letters = config.dead_letters.topic if config.dead_letters is not None else None
    places = (place for _, sink in config.sink_blocks for place in sink.chosen.places(brokers=config.brokers))
    sinks = [place.name for place in places if place.kind == "topic"]
    return [*([letters] if letters is not None else []), *sinks]


def _access(config: PipelineConfig, settings: Kubernetes) -> TopicAccess:
    kafka, written = config.source.kafka, tuple(_written_topics(config))
    if kafka is None:
        return TopicAccess(write=written)
    prefix = None
    if kafka.topics_pattern is not None and settings.strimzi is not None and settings.strimzi.login != "none":
        if (found := _PREFIX.fullmatch(kafka.topics_pattern)) is None:
            what = f"a Kafka user cannot be limited to the topics of the pattern {kafka.topics_pattern}"
            hint = "write the pattern as prefix.*; or set login: none, and create the user yourself"
            raise ConfigError(what, where="deploy.kubernetes.strimzi", hint=hint)
        prefix = found[1].replace("\\.", ".")
    return TopicAccess(read=tuple(kafka.topics or ()), prefix=prefix, write=written, group=kafka.monitoring_group)


def _local_files(config: PipelineConfig, folder: Path, settings: Kubernetes) -> dict[str, str]:
    """Return the texts of the files and Python modules that the pipeline needs, by path, without mounted files."""
    mounted = tuple(settings.mounts)
    texts: dict[str, str] = {}
    imports = find_imports(folder, function_modules(config))
    for file in [*named_files(config), *sorted(imports.files)]:
        if any(file.is_relative_to(place) for place in mounted):
            continue
        try:
            relative = file.resolve().relative_to(folder.resolve())
        except ValueError:
            hint = "move the file beside the pipeline file; or mount it from a ConfigMap: deploy.kubernetes.mounts"
            raise ConfigError("the file is not in the pipeline file's folder", where=str(file), hint=hint) from None
        try:
            texts[relative.as_posix()] = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            hint = "save the file as UTF-8; or mount it from a ConfigMap: deploy.kubernetes.mounts"
            raise ConfigError(f"the file cannot be read as text: {error}", where=str(file), hint=hint) from None
    return texts


def _require_no_secret(app: Application, secrets: set[str]) -> None:
    """Refuse files with a secret, because all users with access to the namespace can read a ConfigMap."""
    for path, text in (*app.files.items(), ("the arguments", " ".join(app.arguments))):
        if any(secret in text for secret in secrets if secret):
            hint = "write ${NAME}, and name the Secret in deploy.kubernetes.secret_env"
            raise ConfigError("the manifest would show a secret, which is written in plain text", where=path, hint=hint)
