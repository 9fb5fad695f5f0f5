"""Check Kubernetes objects with published rules: schemas of core objects, CRDs, Pod Security Standards."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

Object = dict[str, Any]
# The version of kubernetes-validate's schemas and of the kube-apiserver build.
SCHEMAS = "1.36"
_CORE = ("v1", "policy/v1", "networking.k8s.io/v1", "rbac.authorization.k8s.io/v1")


def documents(text: str) -> list[Object]:
    """Return the objects of a manifest."""
    return list(yaml.safe_load_all(text))


def is_core(item: Object) -> bool:
    """Return whether the object's kind is one of Kubernetes' own."""
    return item["apiVersion"] in _CORE


def validate_core(item: Object) -> None:
    """Fail for a core object that has an unknown field, or a field of the wrong type."""
    kubernetes_validate.validate(item, SCHEMAS, strict=True)


def pods_of(application: Object) -> dict[str, Object]:
    """Return the pods of a SparkApplication by role: its pod templates, with the fields that Spark adds."""
    spec = application["spec"]
    if application["apiVersion"].startswith("spark.apache.org/"):
        templates = {role: spec[f"{role}Spec"]["podTemplateSpec"] for role in ("driver", "executor")}
        image = spec["sparkConf"]["spark.kubernetes.container.image"]
    else:
        templates = {role: spec[role]["template"] for role in ("driver", "executor")}
        image = spec["image"]
    pods = {}
    for role, template in templates.items():
        pod = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(template)}
        pod["metadata"] |= {"name": f"{application['metadata']['name']}-{role}"}
        pod["metadata"]["namespace"] = application["metadata"]["namespace"]
        (container,) = pod["spec"]["containers"]
        container["image"] = image
        pods[role] = pod
    return pods


def violations(pod: Object) -> Iterator[str]:
    """Yield the fields that the restricted Pod Security Standard forbids; controls for Windows are not checked.

    https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
    """
    spec = pod["spec"]
    around = spec.get("securityContext", {})
    yield from (name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name))
    allowed = {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    for volume in spec.get("volumes", []):
        yield from (f"volume {kind}" for kind in volume.keys() - {"name"} - allowed)
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        own = container.get("securityContext", {})
        if own.get("privileged"):
            yield "privileged"
        if own.get("allowPrivilegeEscalation") is not False:
            yield "allowPrivilegeEscalation"
        if not own.get("runAsNonRoot", around.get("runAsNonRoot")):
            yield "runAsNonRoot"
        if own.get("runAsUser", around.get("runAsUser")) == 0:
            yield "runAsUser"
        profile = own.get("seccompProfile", around.get("seccompProfile", {})).get("type")
        if profile not in ("RuntimeDefault", "Localhost"):
            yield "seccompProfile"
        capabilities = own.get("capabilities", {})
        if "ALL" not in capabilities.get("drop", []) or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
            yield "capabilities"
        yield from ("hostPort" for port in container.get("ports", []) if port.get("hostPort"))


class Definitions:
    """The custom resource definitions of a folder, as strict schemas."""

    def __init__(self, folder: Path) -> None:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        files = sorted(folder.glob("*.yaml"))
        self.definitions: list[Object] = [yaml.load(file.read_text(), Loader=loader) for file in files]
        self._schemas: dict[tuple[str, str], Object] = {}
        for definition in self.definitions:
            spec = definition["spec"]
            for version in spec["versions"]:
                schema = copy.deepcopy(version["schema"]["openAPIV3Schema"])
                for name in ("apiVersion", "kind", "metadata"):
                    schema["properties"].setdefault(name, {})
                schema["properties"]["metadata"] = {"type": "object"}
                _make_strict(schema)
                self._schemas[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema

    def mistakes(self, item: Object) -> list[str]:
        """Return the errors of an object, checked by the definition of its kind."""
        schema = self._schemas[item["apiVersion"], item["kind"]]
        found = jsonschema.Draft202012Validator(schema).iter_errors(item)
        return [f"{'.'.join(map(str, each.path))}: {each.message[:200]}" for each in found]


def _make_strict(schema: Any) -> None:
    """Refuse unknown fields, as the API server does with fieldValidation=Strict."""
    if isinstance(schema, dict):
        if schema.get("x-kubernetes-int-or-string"):
            schema.pop("type", None)
            schema["anyOf"] = [{"type": "integer"}, {"type": "string"}]
        is_open = schema.get("x-kubernetes-preserve-unknown-fields")
        if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema and not is_open:
            schema["additionalProperties"] = False
        for below in list(schema.values()):
            _make_strict(below)
    elif isinstance(schema, list):
        for below in schema:
            _make_strict(below)
