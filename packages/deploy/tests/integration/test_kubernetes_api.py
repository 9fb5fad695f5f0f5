"""A Kubernetes API server accepts the manifests, and the pods that Spark creates from them.

The commands of docs/deploy-on-kubernetes.md create the namespace and the role. ``LAKEFEED_CRDS`` names a folder with
the CRDs of both Spark operators and of Strimzi. There is no kubelet, so no pod runs.
"""

import copy
import json
import os
import re
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakefeed_deploy.spark_submit.submit import spark_submit
from tests.support.cli import Running
from tests.support.kubernetes_objects import Object, documents, pods_of
from tests.support.servers.kubernetes_api import KubernetesApi, kubernetes_api
from tools.generate_docs import DOCUMENTS

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "deploy-on-kubernetes.md").read_text("utf-8")
MANIFESTS = sorted(name for name in DOCUMENTS if name.startswith("kubernetes/"))
DEPLOYER = "deployer"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def block(language: str, containing: str) -> str:
    """Return the page's only code block in this language that contains this text."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", PAGE, re.DOTALL | re.MULTILINE)
    (text,) = (textwrap.dedent(body) for _, body in found if containing in body)
    return text


def shell(api: KubernetesApi, script: str, *, user: str) -> str:
    """Run a script of the page as a user, with the lakefeed command of these tests."""
    environment = api.environment(user)
    programs = str(Path(os.environ.get("VIRTUAL_ENV", ROOT / ".venv")) / "bin")
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    ran = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", script],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesApi]:
    """Start an API server; add the CRDs, the namespaces and the deployer's role with the commands of the page."""
    folder = os.environ.get("LAKEFEED_CRDS")
    what = "set LAKEFEED_CRDS to a folder with the CRDs: both operators' SparkApplication, Strimzi's topics and users"
    assert folder is not None, what
    with kubernetes_api(tmp_path_factory.mktemp("kubernetes"), users=(DEPLOYER,)) as running:
        for file in sorted(Path(folder).glob("*.yaml")):
            running.do("create", "-f", str(file.absolute()))
        running.do("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        shell(running, block("sh", "kubectl create namespace"), user="admin")
        running.do("create", "namespace", "kafka")
        role = yaml.safe_load(block("yml", "lakefeed-deployer"))
        kafka = copy.deepcopy(role)
        kafka["metadata"]["namespace"] = "kafka"
        (named,) = re.findall(r"namespace: ((?:`\w+`(?:, )?)+) on `(\w+)` and `(\w+)` of `([\w.]+)`", PAGE)
        verbs = re.findall(r"\w+", named[0])
        kafka["rules"] = [{"apiGroups": [named[3]], "resources": list(named[1:3]), "verbs": verbs}]
        for each in (role, kafka):
            running.do("create", "-f", "-", stdin=yaml.safe_dump(each))
            where = ["--namespace", each["metadata"]["namespace"]]
            name = each["metadata"]["name"]
            running.do("create", "rolebinding", name, f"--role={name}", f"--user={DEPLOYER}", *where)
        yield running


def apply(api: KubernetesApi, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    return api.kubectl("apply", "--validate=strict", *options, "-f", "-", user=DEPLOYER, stdin=text)


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_role_on_the_page_lets_a_user_apply_the_manifests(api: KubernetesApi, name: str) -> None:
    text = DOCUMENTS[name]()
    kinds = [item["kind"] for item in documents(text)]
    # Do not begin with a dry run, which would refuse to bind a role that does not exist yet.
    for options in ((), ("--dry-run=server",), ()):
        done = apply(api, text, *options)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == len(kinds)
    # The second apply changes nothing: the API server has added no field that differs from the manifest.
    (application,) = (line for line in done.stdout.splitlines() if line.startswith("sparkapplication"))
    assert application.endswith("unchanged"), done.stdout
    api.do("delete", *kinds_and_names(text), "--namespace=spark-jobs", user=DEPLOYER)


def kinds_and_names(text: str) -> list[str]:
    """Return kind and name of the manifest's SparkApplication, as kubectl names them."""
    (found,) = (item for item in documents(text) if item["kind"] == "SparkApplication")
    return [f"sparkapplications.{found['apiVersion'].partition('/')[0]}", found["metadata"]["name"]]


def test_the_api_server_refuses_wrong_manifests_and_pods(api: KubernetesApi) -> None:
    for name in MANIFESTS:
        for item in documents(DOCUMENTS[name]()):
            if "spec" not in item:
                continue
            changed = copy.deepcopy(item)
            changed["spec"]["misspelt"] = 1
            done = apply(api, yaml.safe_dump(changed), "--dry-run=server")
            assert done.returncode != 0, (name, item["kind"])
            assert "misspelt" in done.stderr
    pod = pods_of(application_of("kubernetes/taxi-apache.yaml"))["driver"]
    created = ("create", "--dry-run=server", "-f", "-")
    assert api.kubectl(*created, stdin=json.dumps(pod)).returncode == 0
    del pod["spec"]["securityContext"]["seccompProfile"]
    refused = api.kubectl(*created, stdin=json.dumps(pod))
    assert 'violates PodSecurity "restricted:latest"' in refused.stderr
    foreign = api.kubectl("get", "secrets", "--namespace=spark-jobs", user=DEPLOYER)
    assert "forbidden" in foreign.stderr


def application_of(name: str) -> Object:
    (found,) = (item for item in documents(DOCUMENTS[name]()) if item["kind"] == "SparkApplication")
    return found


def test_the_commands_of_the_page_apply_the_example(api: KubernetesApi, tmp_path: Path) -> None:
    example = (ROOT / "examples" / "kubernetes" / "pipeline.yaml").read_text("utf-8")
    (tmp_path / "pipeline.yaml").write_text(example)
    here = f"cd {tmp_path}\n"
    assert "sparkapplication" in shell(api, here + block("sh", "manifest pipeline.yaml | kubectl"), user=DEPLOYER)
    printed = shell(api, here + block("sh", "--format kustomize"), user=DEPLOYER)
    assert re.search(r"sparkapplication\S+/taxi unchanged", printed), printed
    overlay = tmp_path / "deploy/overlays/production/kustomization.yaml"
    overlay.write_text(overlay.read_text().replace("value: '10'", "value: '20'"))
    shell(api, here + "kubectl apply -k deploy/overlays/production", user=DEPLOYER)
    found = json.loads(api.do("get", "sparkapplications.spark.apache.org", "taxi", "-o=json", "-n=spark-jobs"))
    assert found["spec"]["sparkConf"]["spark.executor.instances"] == "20"


def spark_files(folder: Path, application: Object, api: KubernetesApi) -> list[str]:
    """Return the options with which an operator calls spark-submit: pod templates, settings, sizes."""
    spec = application["spec"]
    conf: dict[str, str] = dict(spec["sparkConf"])
    for role in ("driver", "executor"):
        template = folder / f"{role}.yaml"
        pod = {"apiVersion": "v1", "kind": "Pod", **spec[f"{role}Spec"]["podTemplateSpec"]}
        template.write_text(yaml.safe_dump(pod))
        conf[f"spark.kubernetes.{role}.podTemplateFile"] = str(template)
        conf[f"spark.kubernetes.{role}.podTemplateContainerName"] = pod["spec"]["containers"][0]["name"]
    conf["spark.kubernetes.namespace"] = application["metadata"]["namespace"]
    conf["spark.kubernetes.submission.waitAppCompletion"] = "false"
    file = folder / "spark.properties"
    file.write_text("".join(f"{key} {value}\n" for key, value in conf.items()))
    return ["--master", f"k8s://{api.url}", "--properties-file", str(file), "--name", application["metadata"]["name"]]


def test_the_api_server_accepts_the_driver_pod_of_spark_submit(api: KubernetesApi, tmp_path: Path) -> None:
    """In cluster mode, spark-submit creates the driver's pod; an operator runs it with the operator's rights."""
    text = DOCUMENTS["kubernetes/taxi-apache.yaml"]()
    assert apply(api, text).returncode == 0
    application = application_of("kubernetes/taxi-apache.yaml")
    spec = application["spec"]
    done = subprocess.run(
        [
            spark_submit(),
            *spark_files(tmp_path, application, api),
            *("--deploy-mode", "cluster", spec["pyFiles"], *spec["driverArgs"]),
        ],
        env={**os.environ, **api.environment()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (driver,) = pods(api, "spark-role=driver")
    (container,) = driver["spec"]["containers"]
    assert container["args"][:1] == ["driver"]
    assert container["args"][-len(spec["driverArgs"]) :] == spec["driverArgs"]
    assert driver["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
    # Spark adds its own mounts beside those of the writable folders.
    places = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/tmp", "/var/lib/spark", "/etc/lakefeed", "/opt/spark/conf"} <= places
    values = {each["name"]: each for each in container["env"]}
    assert values["AWS_SECRET_ACCESS_KEY"]["valueFrom"]["secretKeyRef"]["name"] == "lake-s3"
    assert values["SPARK_LOCAL_DIRS"]["value"] == "/var/lib/spark"


def test_the_account_in_the_manifest_lets_a_driver_start_executors(api: KubernetesApi, tmp_path: Path) -> None:
    """With ``lakefeed run --master k8s://…``, Spark's scheduler requests pods as a driver in the cluster does."""
    application = application_of("kubernetes/taxi-apache.yaml")
    spark_files(tmp_path, application, api)
    conf: dict[str, Any] = dict(application["spec"]["sparkConf"])
    for role in ("driver", "executor"):
        conf[f"spark.kubernetes.{role}.podTemplateFile"] = str(tmp_path / f"{role}.yaml")
    conf |= {"spark.kubernetes.namespace": "spark-jobs", "spark.executor.instances": "2", "spark.driver.memory": "1g"}
    pipeline = {"name": "trips", "source": {"rate": {"rows_per_second": 1}}, "sink": {"console": {}}, "spark": conf}
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps(pipeline))
    running = Running(["run", file, "--master", f"k8s://{api.url}"], as_account(api), tmp_path / "run.log")
    try:
        deadline = time.monotonic() + 120
        while len(found := pods(api, "spark-role=executor")) < 2:
            assert running.process.poll() is None, running.said()
            assert time.monotonic() < deadline, running.said()
            time.sleep(1)
    finally:
        running.kill()
    for pod in found:
        (container,) = pod["spec"]["containers"]
        assert container["args"] == ["executor"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["topologySpreadConstraints"]


def as_account(api: KubernetesApi) -> dict[str, str]:
    """Return a kubeconfig that logs in with a token of the manifest's service account."""
    token = api.do("create", "token", "taxi", "--namespace=spark-jobs").strip()
    environment = api.environment(DEPLOYER)
    config = api.folder / "account"
    own = Path(environment["KUBECONFIG"]).read_text("utf-8").replace(api.tokens[DEPLOYER], token)
    config.write_text(own)
    return {"KUBECONFIG": str(config)}


def pods(api: KubernetesApi, selector: str) -> list[Object]:
    found = api.do("get", "pods", "--namespace=spark-jobs", f"--selector={selector}", "-o=json")
    items: list[Object] = json.loads(found)["items"]
    return items
