"""Return the objects around the application: files, account, service, network policy, topics."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Literal

from lakefeed.config.values import seconds_of
from lakefeed_deploy.kubernetes.application import Application
from lakefeed_deploy.kubernetes.pods import (
    DRIVER,
    EXECUTOR,
    Object,
    config_map_keys,
    labels,
    pod_template,
    selector,
    sizes,
    spark_settings,
)
from lakefeed_deploy.settings import PodSize, Strimzi

# The driver may create executors and a ConfigMap with their settings, and delete its own service.
DRIVER_RULES = (
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["create", "get", "list", "watch", "delete", "deletecollection"],
    },
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "list", "delete", "deletecollection"]},
    {"apiGroups": [""], "resources": ["services"], "verbs": ["list", "delete", "deletecollection"]},
)
_STRIMZI = "kafka.strimzi.io/v1"
# The prefix of the consumer group that Spark creates for each query.
_SPARK_GROUPS = "spark-kafka-"
# The longest name of a Strimzi object before the hash is added; Kubernetes allows 253 characters in all.
_LONGEST_NAME = 244


def feed_objects(app: Application, operator: Operator) -> list[Object]:
    """Return the objects of the application's namespace, in the order of their creation."""
    return [*_surroundings(app), RENDERERS[operator](app)]


def kafka_objects(app: Application) -> list[Object]:
    """Return the topics and the user that Strimzi creates; an empty list without a block for Strimzi."""
    strimzi = app.settings.strimzi
    return [] if strimzi is None else list(_strimzi(app, strimzi))


def _surroundings(app: Application) -> Iterator[Object]:
    settings = app.settings
    if app.config_map is not None:
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _metadata(app, app.config_map),
            # A changed file gets a new object, because its name depends on the content; rollbacks use the old object.
            "immutable": True,
            "data": {key: app.files[path] for path, key in config_map_keys(app).items()},
        }
    if settings.service_account is None:
        yield from _account(app)
    ports = [
        {"name": name, "port": port, "targetPort": port, "protocol": "TCP"} for name, port in _open_ports(app).items()
    ]
    if ports:
        spec = {"selector": selector(app, DRIVER), "ports": ports}
        yield {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(app), "spec": spec}
    if settings.network_policy:
        yield _network_policy(app)
    if settings.executor.instances > 1:
        # A disruption budget for executors: Kubernetes accepts only a number for minAvailable, because the pods have no
        # controller. The driver needs no budget: an evicted driver ends its batch, and the operator restarts it.
        yield {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": _metadata(app, f"{app.name}-executors"),
            "spec": {
                "minAvailable": settings.executor.instances - 1,
                "selector": {"matchLabels": selector(app, EXECUTOR)},
            },
        }


def _account(app: Application) -> Iterator[Object]:
    account: Object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(app)}
    if app.settings.service_account_annotations:
        account["metadata"]["annotations"] = dict(app.settings.service_account_annotations)
    # Only the driver's pod template mounts the token, so that executors do not get it.
    yield {**account, "automountServiceAccountToken": False}
    group = "rbac.authorization.k8s.io"
    rules = [dict(rule) for rule in DRIVER_RULES]
    yield {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": _metadata(app), "rules": rules}
    subject = {"kind": "ServiceAccount", "name": app.service_account, "namespace": app.settings.namespace}
    yield {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": _metadata(app),
        "roleRef": {"apiGroup": group, "kind": "Role", "name": app.name},
        "subjects": [subject],
    }


def _open_ports(app: Application) -> dict[str, int]:
    metrics = {"metrics": app.probe_port} if app.probe_port is not None else {}
    return {**metrics, **app.ports}


def _network_policy(app: Application) -> Object:
    ingress: list[Object] = [{"from": [{"podSelector": {"matchLabels": selector(app)}}]}]
    if opened := _open_ports(app):
        ingress.append({"ports": [{"port": port, "protocol": "TCP"} for port in opened.values()]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(app),
        "spec": {"podSelector": {"matchLabels": selector(app)}, "policyTypes": ["Ingress"], "ingress": ingress},
    }


def _strimzi(app: Application, strimzi: Strimzi) -> Iterator[Object]:
    names = [_object_name(topic) for topic in app.topics]
    for topic, name in zip(app.topics, names, strict=True):
        if names.count(name) > 1:  # Objects of different topics must have different names.
            name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(topic.encode()).hexdigest()[:8]}"
        spec: Object = {"topicName": topic, "partitions": strimzi.partitions, "replicas": strimzi.replicas}
        if strimzi.config:
            spec["config"] = dict(strimzi.config)
        yield {
            "apiVersion": _STRIMZI,
            "kind": "KafkaTopic",
            "metadata": _strimzi_metadata(app, strimzi, name),
            "spec": spec,
        }
    if strimzi.login != "none":
        yield {
            "apiVersion": _STRIMZI,
            "kind": "KafkaUser",
            "metadata": _strimzi_metadata(app, strimzi, app.name),
            "spec": {
                "authentication": {"type": strimzi.login},
                "authorization": {"type": "simple", "acls": list(_acls(app))},
            },
        }


def _acls(app: Application) -> Iterator[Object]:
    for topic in app.access.read:
        yield _acl("topic", topic, _READ)
    if app.access.prefix is not None:
        yield _acl("topic", app.access.prefix, _READ, pattern="prefix")
    for topic in app.access.write:
        yield _acl("topic", topic, ["Write", "Describe", "DescribeConfigs", "Create"])
    if app.access.read or app.access.prefix:
        yield _acl("group", _SPARK_GROUPS, ["Read"], pattern="prefix")
    if app.access.group is not None:
        yield _acl("group", app.access.group, ["Read", "Describe"])


_READ = ["Read", "Describe", "DescribeConfigs"]


def _acl(kind: str, name: str, operations: list[str], *, pattern: str = "literal") -> Object:
    return {"resource": {"type": kind, "name": name, "patternType": pattern}, "operations": operations}


def _object_name(topic: str) -> str:
    parts = re.sub(r"[^a-z0-9.-]", "-", topic.lower()).split(".")
    return ".".join(part for each in parts if (part := each.strip("-"))) or "topic"


def _metadata(app: Application, name: str | None = None) -> Object:
    return {"name": name or app.name, "namespace": app.settings.namespace, "labels": labels(app)}


def _strimzi_metadata(app: Application, strimzi: Strimzi, name: str) -> Object:
    return {
        "name": name,
        "namespace": strimzi.namespace,
        "labels": {**labels(app), "strimzi.io/cluster": strimzi.cluster},
    }


Operator = Literal["apache", "kubeflow"]
# The path, in the image, of the program that passes its arguments to lakefeed.
MAIN_FILE = "local:///opt/lakefeed/app.py"
_WITHOUT_END = 2**31 - 1
_READY_SECONDS = 900


def spark_version() -> str:
    """Return the Spark version for which lakefeed's jars are built."""
    required = metadata.requires("lakefeed") or []
    return next(found[1] for each in required if (found := re.match(r"pyspark==([0-9.]+)", each)))


def apache(app: Application) -> Object:
    """Return the SparkApplication of Apache's operator (spark.apache.org/v1).

    OnFailure restarts a driver that does not end with status 0.
    """
    wait = app.settings.restart.wait_seconds * 1000
    restart: Object = {"restartPolicy": "Never"}
    if app.restarts:
        restart = {
            "restartPolicy": "OnFailure",
            "maxRestartAttempts": app.settings.restart.attempts or _WITHOUT_END,
            "restartBackoffMillis": wait,
            # A feed that has run for an hour since its last failure counts as recovered.
            "restartCounterResetMillis": 3_600_000,
        }
    stop = seconds_of(app.settings.stop_within)
    spec: Object = {
        "runtimeVersions": {"sparkVersion": spark_version()},
        "mainClass": "org.apache.spark.deploy.PythonRunner",
        "pyFiles": MAIN_FILE,
        "driverArgs": list(app.arguments),
        "sparkConf": {**spark_settings(app), **sizes(app)},
        "driverSpec": {"podTemplateSpec": pod_template(app, DRIVER)},
        "executorSpec": {"podTemplateSpec": pod_template(app, EXECUTOR)},
        "applicationTolerations": {
            "restartConfig": restart,
            "applicationTimeoutConfig": {
                "driverReadyTimeoutMillis": _READY_SECONDS * 1000,
                "forceTerminationGracePeriodMillis": (stop + 60) * 1000,
            },
        },
    }
    return _resource(app, "spark.apache.org/v1", spec)


def kubeflow(app: Application) -> Object:
    """Return the SparkApplication of Kubeflow's operator (sparkoperator.k8s.io/v1beta2).

    After each failed submission, this operator waits for the interval times the number of attempts.
    """
    attempts = app.settings.restart.attempts or _WITHOUT_END
    wait = app.settings.restart.wait_seconds
    restart: Object = {"type": "Never"}
    if app.restarts:
        restart = {
            "type": "OnFailure",
            "onFailureRetries": attempts,
            "onFailureRetryInterval": wait,
            "onSubmissionFailureRetries": attempts,
            "onSubmissionFailureRetryInterval": wait,
        }
    settings = app.settings
    spec: Object = {
        "type": "Python",
        "pythonVersion": "3",
        "mode": "cluster",
        "sparkVersion": spark_version(),
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "mainApplicationFile": MAIN_FILE,
        "arguments": list(app.arguments),
        "sparkConf": spark_settings(app),
        "restartPolicy": restart,
        "driver": {**_size(settings.driver), **_pod(app, DRIVER)},
        "executor": {"instances": settings.executor.instances, **_size(settings.executor), **_pod(app, EXECUTOR)},
    }
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = list(settings.image_pull_secrets)
    return _resource(app, "sparkoperator.k8s.io/v1beta2", spec)


RENDERERS: dict[Operator, Callable[[Application], Object]] = {"apache": apache, "kubeflow": kubeflow}


def _resource(app: Application, version: str, spec: Object) -> Object:
    named = {"name": app.name, "namespace": app.settings.namespace, "labels": labels(app)}
    return {"apiVersion": version, "kind": "SparkApplication", "metadata": named, "spec": spec}


def _size(size: PodSize) -> Object:
    found: Object = {"cores": size.cores, "memory": size.memory}
    if size.memory_overhead is not None:
        found["memoryOverhead"] = size.memory_overhead
    if size.cpu_limit is not None:
        found["coreLimit"] = size.cpu_limit
    return found


def _pod(app: Application, role: str) -> Object:
    return {"serviceAccount": app.service_account, "template": pod_template(app, role)}
