"""Return the application as a SparkApplication of Apache's or Kubeflow's operator."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import metadata
from typing import Literal

from lakefeed.config.values import seconds_of
from lakefeed_deploy.kubernetes.application import Application
from lakefeed_deploy.kubernetes.pods import DRIVER, EXECUTOR, Object, labels, pod_template, sizes, spark_settings
from lakefeed_deploy.settings import PodSize

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
