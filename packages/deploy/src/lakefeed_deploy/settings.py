"""The block ``deploy`` of a pipeline file: pods, accounts and topics of the feed on Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from lakefeed.config.base import ConfigProblem, Model, checked, spelled
from lakefeed.config.blocks import Block
from lakefeed.config.secrets import SecretsGoElsewhere
from lakefeed.config.values import Count, Period, TopicName, seconds_of

PIPELINE_FOLDER = "/etc/lakefeed"
SCRATCH_FOLDER = "/var/lib/spark"
TEMPORARY_FOLDER = "/tmp"  # noqa: S108
PROBE_PORT = 8081

_HOST = r"[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?"
_NAME = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(rf"(?:{_HOST}/)?{_NAME}(?:/{_NAME})*(?::\w[\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?", re.ASCII)

# Kubernetes' rules for names, labels and quantities. The limit leaves room for the suffixes of Spark's objects.
AppName = Annotated[
    str, spelled(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", "'{}' is not a valid name: a-z, 0-9 and -, 40 letters at most")
]
DnsName = Annotated[
    str,
    spelled(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "'{}' is not a Kubernetes name: a-z, 0-9 and -, 63 letters at most"),
]
Variable = Annotated[str, spelled(r"[A-Za-z_][A-Za-z0-9_]*", "'{}' is not a valid name of an environment variable")]
PublicValue = Annotated[
    str,
    SecretsGoElsewhere("take it from a Secret: deploy.kubernetes.secret_env.{}: {secret: NAME, key: KEY}"),
]
_KEY = r"([A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LabelKey = Annotated[str, spelled(_KEY, "'{}' is not a valid key of a label or an annotation")]
LabelValue = Annotated[
    str, spelled(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", "'{}' cannot be a label's value")
]
Quantity = Annotated[
    str, spelled(r"[1-9][0-9]*(m|k|M|G|T|Ki|Mi|Gi|Ti)?", "'{}' is not a quantity of Kubernetes: 10Gi, 500m")
]
Memory = Annotated[str, spelled(r"(?i)[1-9][0-9]*[mg]", "'{}' is not an amount of memory for Spark: 2g, 1024m")]
SecretFileKey = Annotated[str, spelled(r"[-._A-Za-z0-9]{1,253}", "'{}' is not a valid key of a Secret")]

_ACCOUNT_FOLDER = "secrets/kubernetes.io"
_RESERVED = (
    *(PIPELINE_FOLDER, SCRATCH_FOLDER, TEMPORARY_FOLDER, "/opt/spark", "/opt/lakefeed"),
    # Kubernetes mounts the service account's token in these folders.
    *(f"/var/run/{_ACCOUNT_FOLDER}", f"/run/{_ACCOUNT_FOLDER}"),
    *("/proc", "/sys", "/dev", "/usr", "/bin", "/sbin", "/lib", "/lib64"),
)
_OWN_LABELS = re.compile(r"app\.kubernetes\.io/(name|instance|component)|lakefeed\.io/.*|spark-.*")
_LEAST_MEMORY = 450
"""The smallest heap in megabytes; with less, Spark does not start."""
_POWERS = {"m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4}


def is_image(reference: str) -> bool:
    """Return whether a text has the form ``[host/]name[:tag][@sha256:digest]``, with capitals only in the host."""
    return _IMAGE.fullmatch(reference) is not None


def _require_image(image: str) -> None:
    if not is_image(image):
        raise ValueError(f"'{image}' is not an image: registry.example.org/lakefeed:1.0, or …@sha256:…")


def _require_folder(path: str) -> None:
    if not re.fullmatch(r"(/[A-Za-z0-9][\w.-]*)+", path, re.ASCII):
        raise ValueError(f"'{path}' is not an absolute path of a folder")
    if taken := next((each for each in _RESERVED if _is_within(path, each)), None):
        raise ValueError(f"'{path}' is within {taken}, which the image uses: choose another path, such as /etc/ca")
    if hidden := next((each for each in _RESERVED if _is_within(each, path)), None):
        raise ValueError(f"'{path}' would hide {hidden}: choose another path, such as /etc/ca")


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _cores(quantity: str) -> float:
    digits, unit = re.findall(r"^(\d+)(\D*)$", quantity)[0]
    base = 1024 if unit.endswith("i") else 1000
    return float(int(digits) * base ** _POWERS[unit.removesuffix("i")])


class PodSize(Model):
    """The size of a pod."""

    cores: Count = Field(1, description="Cores: the number of Spark's task slots, and the CPU request.")
    cpu_limit: Quantity | None = Field(None, description="The most CPU, such as 1500m. Default: no limit.")
    memory: Memory = Field("2g", description="The JVM's heap, such as 1024m.")
    memory_overhead: Memory | None = None
    """Memory besides the heap: Python, direct buffers. Default: Spark's, 40% of the heap, at least 384 MB."""

    def _contradictions(self) -> Iterator[ConfigProblem]:
        if int(self.memory[:-1]) * (1024 if self.memory[-1] in "gG" else 1) < _LEAST_MEMORY:
            what, hint = f"Spark does not start with {self.memory}", f"give {_LEAST_MEMORY}m or more"
            yield ConfigProblem(what, key="memory", hint=hint)
        if self.cpu_limit is not None and _cores(self.cpu_limit) < self.cores:
            what = f"cpu_limit {self.cpu_limit} is below cores, the CPU that the pod requests"
            yield ConfigProblem(what, key="cpu_limit", hint=f"give {self.cores} or more, or fewer cores")


class Executors(PodSize):
    """The executors."""

    instances: Count = Field(2, description="The number of executors.")
    at_most: Count | None = None
    """With dynamic allocation: the most executors that Spark starts while tasks wait. Default: a fixed number."""

    def _contradictions(self) -> Iterator[ConfigProblem]:
        yield from super()._contradictions()
        if self.at_most is not None and self.at_most < self.instances:
            hint = f"give {self.instances} or more, or fewer instances"
            yield ConfigProblem("at_most is below instances", key="at_most", hint=hint)


class SecretKey(Model):
    """A value in an existing Secret of the same namespace."""

    secret: DnsName = Field(description="Name of the Secret.")
    key: SecretFileKey | None = Field(None, description="Key in the Secret. Default: the variable's name.")


class Mount(Model):
    """Files from a Secret or a ConfigMap, such as a CA certificate."""

    secret: DnsName | None = Field(None, description="Name of a Secret.")
    config_map: DnsName | None = Field(None, description="Instead of secret: name of a ConfigMap.")
    driver_only: bool = Field(
        False, description="Mount the files only in the driver's pod, such as the key of the dashboard."
    )

    def _contradictions(self) -> Iterator[str]:
        if (self.secret is None) == (self.config_map is None):
            yield "give either secret or config_map"


class Toleration(Model):
    """A node taint that the pods tolerate."""

    key: LabelKey | None = Field(None, description="Key of the taint. Default: any key, which needs operator: Exists.")
    operator: Literal["Exists", "Equal"] = Field(
        "Equal", description="Equal: the taint has this value. Exists: it may have any value."
    )
    value: LabelValue | None = Field(None, description="Value of the taint.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect. Default: any."""

    def _contradictions(self) -> Iterator[str]:
        if self.operator == "Exists" and self.value is not None:
            yield "operator: Exists takes no value"
        if self.operator == "Equal" and self.key is None:
            yield "operator: Equal requires a key"


class Restart(Model):
    """Restarts of a failed feed. A feed that lakefeed feed stop ended is not restarted."""

    attempts: Count | None = Field(None, description="The most restarts. Default: no limit.")
    wait: Period = Field("30 seconds", description="Time before each restart.")

    @property
    def wait_seconds(self) -> int:
        return seconds_of(self.wait)


class Strimzi(Model):
    """Topics and a user that Strimzi creates in its Kafka cluster."""

    cluster: DnsName = Field(description="Name of the Kafka resource.")
    namespace: DnsName = Field(description="Namespace of the Kafka resource.")
    partitions: Count = Field(10, description="Partitions of each topic of the source.")
    replicas: Annotated[int, Field(ge=1, le=32767)] = Field(3, description="Replicas of each partition.")
    config: dict[str, str] = Field(default_factory=dict)
    """Topic settings, such as retention.ms."""
    topics: list[TopicName] | None = None
    """The topics to create. Default: the topics of source, dead_letters and sinks."""
    login: Literal["scram-sha-512", "tls", "none"] = "scram-sha-512"
    """How the feed's KafkaUser logs in; Strimzi writes its Secret. none: no KafkaUser."""


class Kubernetes(Model):
    """Image, size and connections of the feed's pods."""

    image: Annotated[str, checked(_require_image)]
    """The container image; lakefeed deploy image writes its Dockerfile. Pin it by version or digest."""
    namespace: DnsName
    """Namespace of all objects except Strimzi's."""
    name: AppName | None = Field(None, description="Name of the objects. Default: the feed's, with - for _.")
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When a node pulls the image."""
    image_pull_secrets: list[DnsName] = Field(default_factory=list, description="Secrets with logins of registries.")
    driver: PodSize = Field(default_factory=PodSize)
    executor: Executors = Field(default_factory=Executors)
    scratch: Quantity = Field("10Gi", description="The most that Spark may spill to disk, in each pod.")
    env: dict[Variable, PublicValue] = Field(default_factory=dict)
    """Variables that the pipeline file uses as ${NAME}, and variables of the connections (AWS_ENDPOINT_URL_S3,
    LAKEFEED_CATALOG_URI, …). They are public; put secrets into secret_env."""
    secret_env: dict[Variable, SecretKey] = Field(default_factory=dict)
    """The driver's variables from Secrets, such as AWS_SECRET_ACCESS_KEY: {secret: lake-s3, key: secret}."""
    mounts: dict[str, Mount] = Field(default_factory=dict)
    """Secrets and ConfigMaps to mount as files, by folder: /etc/ca: {config_map: lake-ca}."""
    service_account: DnsName | None = None
    """An existing account with the documented role. Default: a new account with the least privileges."""
    service_account_annotations: dict[LabelKey, str] = Field(default_factory=dict)
    """Annotations of the new account, such as eks.amazonaws.com/role-arn for web identity."""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, description="Further labels of all objects.")
    annotations: dict[LabelKey, str] = Field(default_factory=dict, description="Further annotations of the pods.")
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict, description="Labels of the nodes.")
    tolerations: list[Toleration] = Field(default_factory=list, description="Taints of nodes that the pods accept.")
    priority_class: DnsName | None = Field(None, description="PriorityClass of the pods.")
    restart: Restart = Field(default_factory=Restart)
    stop_within: Period = "5 minutes"
    """The time for the running batch to end when the pod is evicted or deleted."""
    network_policy: bool = True
    """Allow only the feed's own pods to connect to Spark's ports. Egress is not restricted."""
    strimzi: Strimzi | None = Field(None, description="Write KafkaTopic and KafkaUser too. Default: neither.")

    def _contradictions(self) -> Iterator[ConfigProblem]:
        for name in sorted(self.env.keys() & self.secret_env.keys()):
            yield ConfigProblem(f"{name} is in env and in secret_env", key="env", hint="remove one of the two")
        for path in self.mounts:
            try:
                _require_folder(path)
            except ValueError as error:
                yield ConfigProblem(str(error), key="mounts")
            if outer := next((other for other in self.mounts if other != path and _is_within(path, other)), None):
                what, hint = f"'{path}' cannot be mounted within {outer}, which is read-only", "choose another folder"
                yield ConfigProblem(what, key="mounts", hint=hint)
        for label in filter(_OWN_LABELS.fullmatch, self.labels):
            what, hint = f"lakefeed or Spark sets the label {label} itself", "choose another label"
            yield ConfigProblem(what, key="labels", hint=hint)
        if self.service_account is not None and self.service_account_annotations:
            what = "annotations are only for a new account, and service_account names an existing one"
            yield ConfigProblem(what, key="service_account_annotations", hint="remove one of the two settings")


class Deploy(Block):
    """How lakefeed deploy manifest deploys the feed. lakefeed run ignores it."""

    kubernetes: Kubernetes
