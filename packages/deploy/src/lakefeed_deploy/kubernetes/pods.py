"""Return the pod templates and Spark settings, which both operators pass to Spark.

The templates comply with the restricted Pod Security Standard. Spark adds image, command, resources and labels.
"""

from __future__ import annotations

from typing import Any

from lakefeed.config.values import seconds_of
from lakefeed_deploy.kubernetes.application import Application
from lakefeed_deploy.settings import PIPELINE_FOLDER, SCRATCH_FOLDER, TEMPORARY_FOLDER

Object = dict[str, Any]
DRIVER, EXECUTOR = "driver", "executor"
# The user of lakefeed's image and of Spark's own images.
_USER = 185
_PART_OF = "lakefeed"


def labels(app: Application, role: str | None = None) -> dict[str, str]:
    found = {
        **app.settings.labels,
        "app.kubernetes.io/name": "lakefeed",
        "app.kubernetes.io/instance": app.name,
        "app.kubernetes.io/component": app.component,
    }
    return found if role is None else {**found, **selector(app, role)}


def selector(app: Application, role: str | None = None) -> dict[str, str]:
    """Return the labels that select the application's pods, or only those pods with this role."""
    found = {"app.kubernetes.io/instance": app.name, "app.kubernetes.io/component": app.component}
    return found if role is None else {**found, "lakefeed.io/role": role}


def spark_settings(app: Application) -> dict[str, str]:
    """Return the Spark settings that must be set before the driver starts."""
    settings = app.settings
    found = {
        "spark.kubernetes.container.image": settings.image,
        "spark.kubernetes.container.image.pullPolicy": settings.image_pull_policy,
        "spark.kubernetes.authenticate.driver.serviceAccountName": app.service_account,
        "spark.kubernetes.authenticate.executor.serviceAccountName": app.service_account,
        # Driver and executors authenticate by a secret that Spark generates per application, and encrypt with AES.
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
        # Executors use the driver's IP address, because its host name resolves only while the driver's pod is ready.
        "spark.kubernetes.executor.useDriverPodIP": "true",
        # With this setting, Spark would annotate the pod, which the driver's role forbids. The log has the error, too.
        "spark.kubernetes.driver.annotateExitException": "false",
        # The pods have no volume claims, and the driver's role does not allow a list of volume claims.
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.dynamicAllocation.enabled": "false",
    }
    if settings.image_pull_secrets:
        found["spark.kubernetes.container.image.pullSecrets"] = ",".join(settings.image_pull_secrets)
    if settings.executor.at_most is not None:
        found |= {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.minExecutors": str(settings.executor.instances),
            "spark.dynamicAllocation.initialExecutors": str(settings.executor.instances),
            "spark.dynamicAllocation.maxExecutors": str(settings.executor.at_most),
        }
    return found


def sizes(app: Application) -> dict[str, str]:
    found = {"spark.executor.instances": str(app.settings.executor.instances)}
    for role, size in ((DRIVER, app.settings.driver), (EXECUTOR, app.settings.executor)):
        found |= {f"spark.{role}.cores": str(size.cores), f"spark.{role}.memory": size.memory}
        if size.memory_overhead is not None:
            found[f"spark.{role}.memoryOverhead"] = size.memory_overhead
        if size.cpu_limit is not None:
            found[f"spark.kubernetes.{role}.limit.cores"] = size.cpu_limit
    return found


def pod_template(app: Application, role: str) -> Object:
    settings = app.settings
    mounts, volumes = _files(app, role)
    container: Object = {
        "name": f"spark-kubernetes-{role}",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": mounts,
    }
    if role == DRIVER:
        container |= _driver(app)
    spec: Object = {
        "automountServiceAccountToken": role == DRIVER,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }
    if role == DRIVER:
        spec["terminationGracePeriodSeconds"] = seconds_of(settings.stop_within)
    else:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector(app, EXECUTOR)},
            }
        ]
    if settings.node_selector:
        spec["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerations:
        spec["tolerations"] = [each.model_dump(exclude_none=True) for each in settings.tolerations]
    if settings.priority_class is not None:
        spec["priorityClassName"] = settings.priority_class
    annotations = dict(settings.annotations)
    if role == DRIVER and app.probe_port is not None:
        annotations |= {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(app.probe_port),
            "prometheus.io/path": "/metrics",
        }
    metadata: Object = {"labels": labels(app, role)}
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": spec}


def _driver(app: Application) -> Object:
    found: Object = {}
    env: list[Object] = [{"name": name, "value": value} for name, value in app.settings.env.items()]
    for name, secret in app.settings.secret_env.items():
        reference = {"name": secret.secret, "key": secret.key or name}
        env.append({"name": name, "valueFrom": {"secretKeyRef": reference}})
    if env:
        found["env"] = env
    ports: list[Object] = []
    if (port := app.probe_port) is not None:
        ports.append({"name": "probes", "containerPort": port, "protocol": "TCP"})
        # Allow the driver five minutes (60 probes, 5 s apart) to start Spark and the executors.
        found["startupProbe"] = _probe("/health/live", port, period=5, failures=60)
        found["livenessProbe"] = _probe("/health/live", port, period=20, failures=6)
        # Do not use /health/ready: a feed is ready only with executors, and Kubernetes' DNS may not resolve the
        # driver's name for them before its pod is ready.
        found["readinessProbe"] = _probe("/health/live", port, period=10, failures=3)
    ports += [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in app.ports.items()]
    if ports:
        found["ports"] = ports
    return found


def _probe(path: str, port: int, *, period: int, failures: int) -> Object:
    asked = {"path": path, "port": port, "scheme": "HTTP"}
    return {"httpGet": asked, "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures}


def _files(app: Application, role: str) -> tuple[list[Object], list[Object]]:
    """Return the mounts and volumes of a pod with this role, whose root file system is read-only."""
    mounts: list[Object] = [
        {"name": "tmp", "mountPath": TEMPORARY_FOLDER},
        # The prefix spark-local-dir- makes this volume Spark's scratch space, because Spark's default one has no size
        # limit.
        {"name": "spark-local-dir-1", "mountPath": SCRATCH_FOLDER},
    ]
    volumes: list[Object] = [
        {"name": "tmp", "emptyDir": {"sizeLimit": "2Gi"}},
        {"name": "spark-local-dir-1", "emptyDir": {"sizeLimit": app.settings.scratch}},
    ]
    if role == DRIVER and app.config_map is not None:
        mounts.append({"name": "pipeline", "mountPath": PIPELINE_FOLDER, "readOnly": True})
        items = [{"key": key, "path": path} for path, key in config_map_keys(app).items()]
        volumes.append({"name": "pipeline", "configMap": {"name": app.config_map, "items": items}})
    shared = [(path, mount) for path, mount in app.settings.mounts.items() if role == DRIVER or not mount.driver_only]
    for number, (path, mount) in enumerate(shared, 1):
        mounts.append({"name": f"mount-{number}", "mountPath": path, "readOnly": True})
        source: Object = {"secret": {"secretName": mount.secret}} if mount.secret is not None else {}
        volumes.append({"name": f"mount-{number}", **(source or {"configMap": {"name": mount.config_map}})})
    return mounts, volumes


def config_map_keys(app: Application) -> dict[str, str]:
    """Return a key of the ConfigMap for each file, without the slashes that Kubernetes forbids in keys."""
    keys: dict[str, str] = {}
    for path in app.files:
        key = path.replace("/", "__")
        while key in keys.values():
            key += "_"
        keys[path] = key
    return keys
