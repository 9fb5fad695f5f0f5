"""``lakefeed deploy manifest`` prints objects that Kubernetes accepts, with the pipeline's files and no secret."""

import copy
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lakefeed.cli.main import root
from lakefeed.cli.run import run as run_command
from lakefeed.errors import LakefeedError
from lakefeed_deploy.kubernetes.objects import Operator
from tests.support.kubernetes_objects import Definitions, Object, documents, is_core, pods_of, validate_core, violations
from tools.generate_docs import DOCUMENTS

ROOT = Path(__file__).parents[5]
EXAMPLE = ROOT / "examples" / "kubernetes" / "pipeline.yaml"
MANIFESTS = sorted(name for name in DOCUMENTS if name.startswith("kubernetes/"))
OPERATORS: tuple[Operator, ...] = ("apache", "kubeflow")
PRODUCE = ["--", "nyc-avro-topic", "--file", "s3a://openlake/trips.csv"]

MINIMAL = """
name: taxi_2
source: {kafka: {bootstrap_servers: "${BROKERS}", topics: [trips]}}
decode: {json: {schema_ddl: "id BIGINT"}}
sink: {iceberg: {table: lake.nyc.trips}}
checkpoint: s3a://lake/checkpoints/taxi
deploy:
  kubernetes:
    image: lakefeed:1
    namespace: feeds
    env: {BROKERS: "kafka:9092", LAKEFEED_CATALOG_URI: "http://catalog:8181", LAKEFEED_WAREHOUSE: lake}
"""
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
STRIMZI = ("namespace: feeds", "namespace: feeds\n    strimzi: {cluster: c, namespace: kafka}")


def run(*arguments: str | Path) -> str:
    """Run ``lakefeed`` with these arguments, and return its output."""
    result = CliRunner().invoke(root, ["deploy", "manifest", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def write(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write the minimal pipeline file with these replacements."""
    text = MINIMAL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    file = folder / "pipeline.yaml"
    file.write_text(text)
    return file


def refusal(*arguments: str | Path) -> str:
    """Run ``lakefeed`` with these arguments, which must fail; return the error."""
    with pytest.raises(LakefeedError) as refused:
        CliRunner().invoke(root, ["deploy", "manifest", *map(str, arguments)], catch_exceptions=False)
    assert refused.value.exit_status == 2
    return str(refused.value)


def only(text: str, kind: str) -> Object:
    (found,) = (item for item in documents(text) if item["kind"] == kind)
    return found


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_manifest_in_the_docs_is_that_of_the_example_and_fits_kubernetes(name: str) -> None:
    text = DOCUMENTS[name]()
    assert (ROOT / "docs" / name).read_text() == text, "make docs"
    items = documents(text)
    for item in items:
        if is_core(item):
            validate_core(item)
    application = only(text, "SparkApplication")
    for pod in pods_of(application).values():
        validate_core(pod)
        assert list(violations(pod)) == []
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert {mount["name"] for mount in container["volumeMounts"]} == {
            each["name"] for each in pod["spec"]["volumes"]
        }


@pytest.mark.slow
def test_the_manifests_fit_the_crds_of_both_operators() -> None:
    folder = os.environ.get("LAKEFEED_CRDS")
    what = "set LAKEFEED_CRDS to a folder with the CRDs: both operators' SparkApplication, Strimzi's topics and users"
    assert folder is not None, what
    definitions = Definitions(Path(folder))
    custom = [item for name in MANIFESTS for item in documents(DOCUMENTS[name]()) if not is_core(item)]
    assert {item["apiVersion"].partition("/")[0] for item in custom} == {
        "spark.apache.org",
        "sparkoperator.k8s.io",
        "kafka.strimzi.io",
    }
    for item in custom:
        assert definitions.mistakes(item) == []
        misspelt = copy.deepcopy(item)
        misspelt["spec"]["misspelt"] = 1
        assert definitions.mistakes(misspelt)


def test_the_test_helpers_find_mistakes_in_pods() -> None:
    pod = pods_of(only(run(EXAMPLE), "SparkApplication"))["driver"]
    removals: dict[str, Callable[[Any], Any]] = {
        "seccompProfile": lambda spec: spec["securityContext"].pop("seccompProfile"),
        "runAsNonRoot": lambda spec: spec["securityContext"].pop("runAsNonRoot"),
        "capabilities": lambda spec: spec["containers"][0]["securityContext"].pop("capabilities"),
        "allowPrivilegeEscalation": lambda spec: spec["containers"][0]["securityContext"].clear(),
        "volume hostPath": lambda spec: spec["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
    }
    for expected, remove in removals.items():
        changed = copy.deepcopy(pod)
        remove(changed["spec"])
        assert expected in list(violations(changed))
    pod["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(Exception, match="livenessProb"):
        validate_core(pod)


@pytest.mark.parametrize("operator", OPERATORS)
def test_both_operators_get_the_same_pods_and_restart_a_failed_feed_without_limit(operator: Operator) -> None:
    application = only(run(EXAMPLE, "--operator", operator), "SparkApplication")
    assert pods_of(application) == pods_of(only(run(EXAMPLE), "SparkApplication"))
    spec = application["spec"]
    statuses = ["--exit-on-signal", "143", "--exit-when-replaced", "0"]
    expected = ["run", "/etc/lakefeed/pipeline.yaml", *statuses, "--probe-port", "8081"]
    if operator == "apache":
        conf = spec["sparkConf"]
        assert (conf["spark.executor.instances"], conf["spark.executor.cores"]) == ("10", "1")
        assert spec["driverArgs"] == expected
        restart = spec["applicationTolerations"]["restartConfig"]
        assert (restart["restartPolicy"], restart["maxRestartAttempts"]) == ("OnFailure", 2**31 - 1)
    else:
        assert (spec["executor"]["instances"], spec["executor"]["cores"]) == (10, 1)
        assert spec["arguments"] == expected
        assert (spec["restartPolicy"]["type"], spec["restartPolicy"]["onFailureRetries"]) == ("OnFailure", 2**31 - 1)
    # The readiness probe must not wait for executors, because executors may not find a driver that is not ready.
    (driver,) = pods_of(application)["driver"]["spec"]["containers"]
    assert {driver[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")} == {
        "/health/live"
    }
    # The arguments are valid options of the command run, with these values.
    parsed = run_command.make_context("run", expected[1:]).params
    assert (parsed["exit_on_signal"], parsed["exit_when_replaced"], parsed["probe_port"]) == (143, 0, 8081)
    assert spec["sparkConf"]["spark.dynamicAllocation.enabled"] == "false"
    assert spec["sparkConf"]["spark.authenticate"] == "true"


def test_only_a_producer_that_is_a_stream_is_restarted() -> None:
    arguments: list[str | Path] = ["produce", EXAMPLE, "--operator", "kubeflow", *PRODUCE]
    bounded = only(run(*arguments), "SparkApplication")["spec"]
    assert bounded["restartPolicy"] == {"type": "Never"}
    assert bounded["arguments"][:3] == ["topics", "produce", "nyc-avro-topic"]
    stream = only(run(*arguments, "--stream", "--checkpoint", "s3a://openlake/c"), "SparkApplication")["spec"]
    assert stream["restartPolicy"]["type"] == "OnFailure"


def test_no_manifest_has_a_secret_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    canary = "canary-7f3b9c"
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "KAFKA_PASSWORD", "AWS_REGION"):
        monkeypatch.setenv(name, canary)
    for operator in OPERATORS:
        for style in ("yaml", "helm-values"):
            assert canary not in run(EXAMPLE, "--operator", operator, "--format", style)
            assert canary not in run("produce", EXAMPLE, "--operator", operator, "--format", style, *PRODUCE)
        folder = tmp_path / operator
        run(EXAMPLE, "--operator", operator, "--format", "kustomize", "--directory", folder)
        assert all(canary not in file.read_text() for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize(
    "changes",
    [
        [("topics: [trips]", "topics: [trips], options: {kafka.sasl.jaas.config: canary-7f3b9c}")],
        [("env: {", "env: {AWS_SECRET_ACCESS_KEY: canary-7f3b9c, ")],
        [("env: {", "env: {WHERE: 'https://me:canary-7f3b9c@host', ")],
        [("checkpoint:", "s3: {access_key: a, secret_key: canary-7f3b9c}\ncheckpoint:")],
        [
            ("checkpoint:", "s3: {access_key: a, secret_key: '${LOGIN}'}\ncheckpoint:"),
            ("env: {", "env: {LOGIN: canary-7f3b9c, "),
        ],
    ],
)
def test_a_secret_in_plain_text_is_refused(tmp_path: Path, changes: list[tuple[str, str]]) -> None:
    assert "canary-7f3b9c" not in refusal(write(tmp_path, *changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("BROKERS: ", "BROKER: ")], "BROKERS is not set in the pod"),
        ([("LAKEFEED_CATALOG_URI: ", "CATALOG: ")], "no catalog is called 'lake'"),
        ([("image: lakefeed:1", "imag: lakefeed:1")], "did you mean 'image'"),
        ([("image: lakefeed:1", "image: '${IMAGE}'")], "must not depend on this machine"),
        ([("namespace: feeds", "namespace: Feeds")], "not a Kubernetes name"),
        ([("namespace: feeds", "namespace: feeds\n    executor: {memory: 1 GB}")], "not an amount of memory for Spark"),
        ([("namespace: feeds", "namespace: feeds\n    executor: {instances: 4, at_most: 2}")], "at_most is below"),
        ([("namespace: feeds", "namespace: feeds\n    mounts: {/tmp/x: {secret: a}}")], "image uses"),
        ([("namespace: feeds", "namespace: feeds\n    mounts: {/etc/x: {}}")], "either secret or config_map"),
        ([("image: lakefeed:1", "image: registry.example/Lake:1")], "is not an image"),
        ([("namespace: feeds", "namespace: feeds\n    mounts: {/opt: {secret: a}}")], "would hide /opt/spark"),
        ([("namespace: feeds", f"namespace: feeds\n    mounts: {{{TOKEN}: {{secret: a}}}}")], "image uses"),
        (
            [("namespace: feeds", "namespace: feeds\n    mounts: {/etc/x: {secret: a}, /etc/x/y: {secret: b}}")],
            "cannot be mounted within /etc/x",
        ),
        ([("namespace: feeds", "namespace: feeds\n    driver: {memory: 400m}")], "does not start with 400m"),
        ([("namespace: feeds", "namespace: feeds\n    driver: {cores: 2, cpu_limit: 1500m}")], "is below cores"),
        ([("namespace: feeds", "namespace: feeds\n    labels: {spark-role: x}")], "Spark sets the label"),
        ([("topics: [trips]", "topics_pattern: 'a|b'"), STRIMZI], "cannot be limited to the topics of the pattern"),
        ([("name: taxi_2", f"name: {'x' * 50}")], "set deploy.kubernetes.name"),
        (
            [("topics: [trips]", "topics: ['${TOPIC}']"), ("env: {", "secret_env: {TOPIC: {secret: a}}\n    env: {")],
            "is not known on this machine",
        ),
        ([(MINIMAL[MINIMAL.index("deploy:") :], "")], "has no block deploy"),
    ],
)
def test_a_mistake_in_the_pipeline_file_is_an_error(
    tmp_path: Path, changes: list[tuple[str, str]], message: str
) -> None:
    assert message in refusal(write(tmp_path, *changes))


def test_the_config_map_has_the_files_and_is_named_by_their_content(tmp_path: Path) -> None:
    package = tmp_path / "rides" / "fares"
    package.mkdir(parents=True)
    (tmp_path / "rides" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("from . import money\nimport json\n")
    (package / "money.py").write_text("from rides.helpers import half\n\ndef fare(rows):\n    return rows\n")
    (tmp_path / "rides" / "helpers.py").write_text("def half(x):\n    return x\n")
    (tmp_path / "rides" / "unused.py").write_text("")
    python = "checkpoint: s3a://lake/checkpoints/taxi\ntransform: {steps: {fares: {python: 'rides.fares.money:fare'}}}"
    file = write(tmp_path, ("checkpoint: s3a://lake/checkpoints/taxi", python))
    text = run(file)
    found = only(text, "ConfigMap")
    expected = {"rides/__init__.py", "rides/fares/__init__.py", "rides/fares/money.py", "rides/helpers.py"}
    (volume,) = (
        volume["configMap"]
        for volume in pods_of(only(text, "SparkApplication"))["driver"]["spec"]["volumes"]
        if volume["name"] == "pipeline"
    )
    assert {item["path"] for item in volume["items"]} == {"pipeline.yaml", *expected}
    assert {item["path"]: found["data"][item["key"]] for item in volume["items"]}["pipeline.yaml"] == file.read_text()
    assert found["metadata"]["name"] == volume["name"]
    (tmp_path / "rides" / "helpers.py").write_text("def half(x):\n    return x / 2\n")
    assert only(run(file), "ConfigMap")["metadata"]["name"] != found["metadata"]["name"]
    (tmp_path / "rides" / "helpers.py").write_text("#" * 1_000_001)
    assert "a ConfigMap holds" in refusal(file)


def test_topics_get_distinct_object_names_that_kubernetes_allows(tmp_path: Path) -> None:
    names = ["a_.b", "a..b", "_", "Trips_X", "x" * 248 + "_", "x" * 248 + "-"]
    items = documents(run(write(tmp_path, ("topics: [trips]", f"topics: {names}"), STRIMZI)))
    topics = {item["metadata"]["name"]: item["spec"]["topicName"] for item in items if item["kind"] == "KafkaTopic"}
    assert sorted(topics.values()) == sorted(names)
    part = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    assert [name for name in topics if len(name) > 253 or not re.fullmatch(rf"{part}(\.{part})*", name)] == []


def test_a_kafka_user_may_read_the_topics_of_a_pattern(tmp_path: Path) -> None:
    text = run(write(tmp_path, ("topics: [trips]", r"topics_pattern: 'trips\.eu-.*'"), STRIMZI))
    topic, group = only(text, "KafkaUser")["spec"]["authorization"]["acls"]
    assert topic["resource"] == {"type": "topic", "name": "trips.eu-", "patternType": "prefix"}
    assert group["operations"] == ["Read"]


def test_the_option_set_changes_the_run_and_the_pods(tmp_path: Path) -> None:
    text = run(write(tmp_path), "--set", "trigger=5 seconds", "--set", "deploy.kubernetes.executor.instances=7")
    spec = only(text, "SparkApplication")["spec"]
    assert spec["driverArgs"][-2:] == ["--set", "trigger=5 seconds"]
    assert spec["sparkConf"]["spark.executor.instances"] == "7"
    assert only(text, "PodDisruptionBudget")["spec"]["minAvailable"] == 6


def test_the_service_and_the_network_policy_have_the_dashboard_port(tmp_path: Path) -> None:
    dashboard = "dashboard: {host: 0.0.0.0, port: 8443, tls: {certificate: /etc/tls/tls.crt, key: /etc/tls/tls.key}, "
    dashboard += "tokens: [{name: prometheus, token: '${VIEWER}'}]}\ncheckpoint:"
    mounts = (
        "mounts: {/etc/tls: {secret: taxi-tls, driver_only: true}}\n    secret_env: {VIEWER: {secret: taxi}}\n    env:"
    )
    text = run(write(tmp_path, ("checkpoint:", dashboard), ("env:", mounts)))
    ports = {port["name"]: port["port"] for port in only(text, "Service")["spec"]["ports"]}
    assert ports == {"metrics": 8081, "dashboard": 8443}
    opened = only(text, "NetworkPolicy")["spec"]["ingress"][1]["ports"]
    assert [port["port"] for port in opened] == [8081, 8443]
    pods = pods_of(only(text, "SparkApplication"))
    names = {role: {volume["name"] for volume in pod["spec"]["volumes"]} for role, pod in pods.items()}
    assert names["driver"] - names["executor"] == {"pipeline", "mount-1"}
    assert "env" not in pods["executor"]["spec"]["containers"][0]
    assert pods["executor"]["spec"]["automountServiceAccountToken"] is False


def test_kustomize_writes_a_base_and_keeps_existing_overlays(tmp_path: Path) -> None:
    folder = tmp_path / "deploy"
    printed = run(EXAMPLE, "--format", "kustomize", "--directory", folder)
    assert {str(folder / name) for name in ("base/kustomization.yaml", "kafka/kafkatopic-nyc-avro-topic.yaml")} <= set(
        printed.splitlines()
    )
    for place in ("base", "kafka"):
        listed = documents((folder / place / "kustomization.yaml").read_text())[0]["resources"]
        assert {*listed, "kustomization.yaml"} == {file.name for file in (folder / place).iterdir()}
    overlay = folder / "overlays" / "production" / "kustomization.yaml"
    overlay.write_text("# mine\n")
    run(EXAMPLE, "--format", "kustomize", "--directory", folder, "--set", "trigger=5 seconds")
    assert overlay.read_text() == "# mine\n"
    foreign = tmp_path / "foreign"
    (foreign / "base").mkdir(parents=True)
    (foreign / "base" / "mine.yaml").write_text("a: 1\n")
    refused = refusal(EXAMPLE, "--format", "kustomize", "--directory", foreign)
    assert re.search("did not write.*base", refused, re.DOTALL)
    assert (foreign / "base" / "mine.yaml").exists()


def test_helm_values_set_the_namespace_and_create_no_accounts() -> None:
    apache = documents(run(EXAMPLE, "--format", "helm-values"))[0]["workloadResources"]
    assert (apache["namespaces"]["data"], apache["serviceAccount"]["create"]) == (["spark-jobs"], False)
    kubeflow = documents(run(EXAMPLE, "--operator", "kubeflow", "--format", "helm-values"))[0]["spark"]
    assert (kubeflow["jobNamespaces"], kubeflow["rbac"]["create"]) == (["spark-jobs"], False)
