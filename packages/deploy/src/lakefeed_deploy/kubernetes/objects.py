"""Return the objects around the application: files, account, service, network policy, topics."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from lakefeed_deploy.kubernetes.application import Application
from lakefeed_deploy.kubernetes.operators import RENDERERS, Operator
from lakefeed_deploy.kubernetes.pods import DRIVER, EXECUTOR, Object, config_map_keys, labels, selector
from lakefeed_deploy.settings import Strimzi

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
        # Kubernetes accepts only a number for minAvailable, because the pods have no controller. The driver needs no
        # budget: if the driver is evicted, it ends its batch, and the operator restarts it.
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
