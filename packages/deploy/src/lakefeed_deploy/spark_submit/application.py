"""Pack a pipeline and everything that its driver needs into one jar, for a cluster without lakefeed.

The jar has this environment's Python packages, the jars of driver and executors, the pipeline file, and the files in
the file's folder that the file names or imports. The cluster provides Spark and the same Python version. The jar
contains no secret: the pipeline file names variables, and the driver finds their values in its environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from lakefeed import plugins
from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.python_files import distributions_of, files_of, find_imports, with_requirements
from lakefeed.clients.spark.session import class_path
from lakefeed.config import secrets
from lakefeed.config.checks import function_modules, named_files
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ConfigError

MAIN_CLASS = "io.lakefeed.submit.Application"
_CONTENT = "application"
PIPELINE_FOLDER = f"{_CONTENT}/pipeline"
"""The folder in the jar with the pipeline file and the local files that it names."""
_JAR = "lakefeed_deploy/lakefeed-deploy.jar"
_CLASSES = "io/lakefeed/submit/"
# The lakefeed package with the extras that a driver needs.
_LAKEFEED = "lakefeed[postgresql,mariadb,otlp]"
_MANIFEST = f"Manifest-Version: 1.0\r\nMain-Class: {MAIN_CLASS}\r\n\r\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_application(file: Path, config: PipelineConfig, connections: Connections, target: Path) -> Path:
    """Write the application jar of a pipeline file; return its path.

    Args:
        config: the pipeline's settings.
        connections: store and catalogs, which decide the required jars.
        target: the jar's path, or an existing folder; in a folder, the jar's name has a digest of its content.

    Raises:
        ConfigError: a package is missing, the file contains a secret, or the target cannot be written.
    """
    _require_no_secret(file, config)
    entries, texts = _files(file, config, connections), _texts(file)
    folder = target if target.is_dir() else target.parent
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".lakefeed-", suffix=".part", delete=False) as partial:
            try:
                digest = _write(partial.name, entries, texts)
                path = target / f"lakefeed-{config.name}-{digest[:12]}.jar" if target.is_dir() else target
                os.chmod(partial.name, 0o644)
                os.replace(partial.name, path)
            except BaseException:
                Path(partial.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        hint = "name a folder that exists and that you may write"
        raise ConfigError(
            f"the application jar cannot be written: {error.strerror}", where=str(target), hint=hint
        ) from error
    return path


def _require_no_secret(file: Path, config: PipelineConfig) -> None:
    if secrets.texts_of(config) & set(_scalars(yaml.safe_load(file.read_text("utf-8-sig")))):
        what = "the pipeline file has a secret, which all users who can read the application jar would see"
        raise ConfigError(
            what, where=str(file), hint="take the secret from a variable: ${NAME}; lakefeed check names the line"
        )


def _scalars(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for below in value.values():
            yield from _scalars(below)
    elif isinstance(value, list):
        for below in value:
            yield from _scalars(below)
    elif value is not None:
        yield str(value)


def _texts(file: Path) -> dict[str, bytes]:
    """Return the jar's entries that are no copies of files: manifest, Java classes, versions, main program."""
    from pyspark import __version__ as spark

    versions = {
        "pipeline": file.name,
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "system": f"{platform.system()} {platform.machine()}",
        "spark": ".".join(spark.split(".")[:2]),
    }
    with zipfile.ZipFile(jvm.jar_of(_JAR)) as module:
        classes = {name: module.read(name) for name in module.namelist() if name.startswith(_CLASSES)}
    return {
        "META-INF/MANIFEST.MF": _MANIFEST.encode(),
        **classes,
        f"{_CONTENT}/application.json": json.dumps(versions, indent=2).encode(),
        f"{_CONTENT}/main.py": Path(__file__).with_name("submitted.py").read_bytes(),
    }


def _files(file: Path, config: PipelineConfig, connections: Connections) -> dict[str, Path]:
    folder = file.absolute().parent
    imports = find_imports(folder, function_modules(config))
    plugged = {entry.dist.name for group in plugins.OF_RUNS for entry in plugins.installed(group) if entry.dist}
    packages = with_requirements([_LAKEFEED, *plugged, *distributions_of(imports.packages)])
    entries = {f"python/{name}": path for distribution in packages.values() for name, path in files_of(distribution)}
    # The names begin with numbers, because the class path must have the order of the lock file.
    entries |= {f"jars/{number:03}-{path.name}": path for number, path in enumerate(class_path(connections))}
    named = {path.absolute() for path in named_files(config) if path.is_file()}
    own = {file.absolute(), *imports.files, *(path for path in named if path.is_relative_to(folder))}
    entries |= {f"pipeline/{path.relative_to(folder).as_posix()}": path for path in own}
    return {f"{_CONTENT}/{name}": path for name, path in entries.items()}


def _write(target: str, entries: Mapping[str, Path], texts: Mapping[str, bytes]) -> str:
    """Write the jar, and return the digest of its content; equal content gives a byte-identical jar."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(target, "w") as jar:
        for name in [*texts, *sorted(entries)]:
            read = texts[name] if name in texts else entries[name].read_bytes()
            digest.update(f"{name} {len(read)} {hashlib.sha256(read).hexdigest()}\n".encode())
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            # Do not compress jars, which are compressed already.
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(".jar") else zipfile.ZIP_DEFLATED
            jar.writestr(entry, read, compresslevel=1)
    return digest.hexdigest()
