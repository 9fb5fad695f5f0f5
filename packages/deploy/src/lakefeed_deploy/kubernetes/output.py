"""Write the objects as a YAML stream, as a Kustomize folder, or as values for an operator's Helm chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lakefeed.errors import ConfigError, WorldError
from lakefeed_deploy.kubernetes.application import Application
from lakefeed_deploy.kubernetes.objects import Operator, feed_objects, kafka_objects
from lakefeed_deploy.kubernetes.pods import Object

_OVERLAYS = "overlays"


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as a block, and repeats equal values instead of writing YAML aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def yaml_text(*documents: Any) -> str:
    return "---\n".join(
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120) for document in documents
    )


def manifest(app: Application, operator: Operator) -> str:
    return yaml_text(*kafka_objects(app), *feed_objects(app, operator))


def kustomize(app: Application, operator: Operator) -> dict[str, str]:
    """Return the files of a Kustomize folder by path: a base, the folder kafka, and two initial overlays.

    Strimzi's objects are not in the base, because an overlay would change their namespace, which must stay Kafka's.
    """
    files: dict[str, str] = {}
    for folder, objects in (("base", feed_objects(app, operator)), ("kafka", kafka_objects(app))):
        if objects:
            names = [f"{item['kind'].lower()}-{item['metadata']['name']}.yaml" for item in objects]
            files |= {f"{folder}/{name}": yaml_text(item) for name, item in zip(names, objects, strict=True)}
            files[f"{folder}/kustomization.yaml"] = _kustomization(resources=names)
    executors = app.settings.executor.instances
    for name, instances in (("production", executors), ("staging", min(executors, 1))):
        files[f"{_OVERLAYS}/{name}/kustomization.yaml"] = _kustomization(
            resources=["../../base"],
            patches=[
                {
                    "target": {"kind": "SparkApplication", "name": app.name},
                    "patch": yaml_text(_overlay(app, operator, instances)),
                }
            ],
        )
    return files


def helm_values(app: Application, operator: Operator) -> str:
    """Return Helm values with which the operator's chart watches the namespace and creates no accounts and roles."""
    namespaces = [app.settings.namespace]
    if operator == "kubeflow":
        values: Object = {
            "spark": {
                "jobNamespaces": namespaces,
                "serviceAccount": {"create": False, "name": app.service_account},
                "rbac": {"create": False},
            }
        }
    else:
        values = {
            "workloadResources": {
                "namespaces": {"create": False, "overrideWatchedNamespaces": True, "data": namespaces},
                "serviceAccount": {"create": False, "name": app.service_account},
                "role": {"create": False},
                "clusterRole": {"create": False},
                "roleBinding": {"create": False},
            }
        }
    return yaml_text(values)


def write_folder(files: Mapping[str, str], folder: Path) -> list[str]:
    """Write the files except existing overlays, which users edit; return the paths of the written files.

    Raises:
        ConfigError: the folder has files that this command has not written.
        WorldError: the folder cannot be written.
    """
    generated = [path for path in files if not path.startswith(_OVERLAYS)]
    _require_ours(folder, {Path(path).parts[0] for path in generated}, files)
    written = []
    try:
        for part in {Path(path).parts[0] for path in generated}:
            for old in (folder / part).glob("*.yaml"):
                old.unlink()
        for path, text in files.items():
            target = folder / path
            if path.startswith(_OVERLAYS) and target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, "utf-8")
            written.append(path)
    except OSError as error:
        what, hint = f"the folder cannot be written: {error.strerror}", "name another folder with --directory"
        raise WorldError(what, where=str(error.filename), hint=hint) from None
    return written


def _require_ours(folder: Path, parts: set[str], files: Mapping[str, str]) -> None:
    """Refuse a folder with files that this command has not written, because this command would delete those files."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError("this is a file, not a folder", where=str(folder), hint="name a folder with --directory")
    for part in sorted(parts):
        place = folder / part
        if place.exists() and not (place / "kustomization.yaml").is_file() and any(place.iterdir()):
            what = "the folder has files that lakefeed deploy manifest did not write"
            raise ConfigError(what, where=str(place), hint="name an empty folder with --directory")


def _overlay(app: Application, operator: Operator, instances: int) -> Sequence[Object]:
    """Return an overlay's patch of the image and the number of executors: these usually differ between environments."""
    if operator == "kubeflow":
        places: dict[str, Any] = {"/spec/image": app.settings.image, "/spec/executor/instances": instances}
    else:
        conf = "/spec/sparkConf"
        places = {
            f"{conf}/spark.kubernetes.container.image": app.settings.image,
            f"{conf}/spark.executor.instances": str(instances),
        }
    return [{"op": "replace", "path": path, "value": value} for path, value in places.items()]


def _kustomization(**settings: Any) -> str:
    return yaml_text({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", **settings})
