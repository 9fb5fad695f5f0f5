"""Write the files for the build of a container image with the versions of the running lakefeed."""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions, version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from lakefeed.clients.environment import PACKAGED, packaged_root
from lakefeed.clients.spark.jars import read_lock
from lakefeed.clients.spark.jvm import jar
from lakefeed.errors import ConfigError, MissingExtra, ResourceMissing
from lakefeed_deploy.image.bill import bill, bundled_jars, jars_of, requirements_of, without_replaced
from lakefeed_deploy.settings import is_image

PAGE = "deploy-on-kubernetes"

BASE_IMAGE = "debian:bookworm-slim"
# The groups of jars for feeds, Kinesis sources and Glue catalogs; the groups of installed sinks are added.
GROUPS = ("spark", "kinesis", "glue")
_OWN_PACKAGES = """\
COPY own-requirements.txt /src/
RUN pip freeze | grep --invert-match ^lakefeed > /src/installed.txt && \\
    pip install --no-cache-dir --requirement /src/own-requirements.txt --constraint /src/installed.txt
"""


@dataclass(frozen=True)
class ImageFiles:
    """The build context ``folder``, the names of the files in it, the base image, and Spark's version."""

    folder: Path
    files: tuple[str, ...]
    base_image: str
    spark: str

    @property
    def is_pinned(self) -> bool:
        """True if the name of the base image has a digest."""
        return "@sha256:" in self.base_image


def write_image_files(
    folder: Path, *, base_image: str = BASE_IMAGE, spark_image: str | None = None, requirements: Path | None = None
) -> ImageFiles:
    """Write Dockerfiles, the files that they copy, and the bill of materials.

    Args:
        folder: the build context, which is created if it is missing; other files in it stay.
        base_image: a Debian image, preferably with its digest.
        spark_image: the cluster's own Spark image, for ``Dockerfile.spark``.
        requirements: a requirements file of pip with the packages that the pipelines' transforms import.

    Raises:
        ConfigError: an image's name is not valid.
        ResourceMissing: the requirements file does not exist.
        MissingExtra: PySpark is not installed.
    """
    locked = _template("requirements.txt")
    parts = list(requirements_of(locked))
    spark = next(part.version for part in parts if part.name == "pyspark")
    spark_image = spark_image or f"apache/spark:{spark}"
    for option, image in (("--base-image", base_image), ("--spark-image", spark_image)):
        if not is_image(image):
            hint = f"write, for example, {BASE_IMAGE}, or {BASE_IMAGE}@sha256:… with the 64 digits of the digest"
            raise ConfigError(f"'{image}' is not the name of an image", where=option, hint=hint)
    if find_spec("pyspark") is None:
        raise MissingExtra.of("pyspark", "spark", "the bill of materials, which lists Spark's jars,")
    own_packages = _read_own_packages(requirements)
    lock = read_lock()
    groups = (*GROUPS, *lock.sink_groups)
    folder.mkdir(parents=True, exist_ok=True)
    wheels = [wheel.name for wheel in write_wheels(folder)]
    values = {
        "version": version("lakefeed"),
        "spark": spark,
        "spark_line": spark.rpartition(".")[0],
        "base": base_image,
        "spark_image": spark_image,
        "wheels": " ".join(wheels),
        "wheel_paths": " ".join(f"/src/{wheel}" for wheel in wheels),
        "groups": "".join(f" --group {group}" for group in groups),
        "own_packages": "" if own_packages is None else _OWN_PACKAGES,
    }
    texts = {name: _template(name).format(**values) for name in ("Dockerfile", "Dockerfile.spark")}
    texts |= {name: _template(name) for name in ("entrypoint.sh", "setuptools.txt")}
    texts["app.py"] = (files("lakefeed") / "cli" / "__main__.py").read_text("utf-8")
    texts["requirements.txt"] = locked
    texts["requirements-without-spark.txt"] = re.sub(r"^(pyspark|py4j)==(.*\\\n)*.*\n", "", locked, flags=re.MULTILINE)
    if own_packages is not None:
        texts["own-requirements.txt"] = own_packages
    jars = list(jars_of(lock.of(groups)))
    texts["sbom.cdx.json"] = bill({*parts, *jars, *without_replaced(bundled_jars(), jars)})
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "entrypoint.sh").chmod(0o755)
    return ImageFiles(folder, (*texts, *wheels), base_image, spark)


def _template(name: str) -> str:
    return (files("lakefeed_deploy.image") / name).read_text("utf-8")


def _read_own_packages(requirements: Path | None) -> str | None:
    if requirements is None:
        return None
    try:
        return requirements.read_text("utf-8")
    except OSError as error:
        raise ResourceMissing(
            f"the file of requirements cannot be read: {error.strerror}",
            where=str(requirements),
            hint="name a readable requirements file of pip, with one package a line",
        ) from None


_NAME = "lakefeed"
_PRIVATE = "Private :: Do Not Upload"
"""The classifier of packages that only this repository uses, such as the bench."""
_COPIED = ("METADATA", "entry_points.txt")
# All files get this time, so that equal files give equal wheels; a ZIP file cannot store an earlier time.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_WHEEL = "Wheel-Version: 1.0\nGenerator: lakefeed\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheels(folder: Path) -> list[Path]:
    """Write the wheels of the running lakefeed and its plug-ins into a folder; return their paths, the core's first.

    A wheel has all files of its package's folder, because an editable installation has no list of files.
    """
    own = {name: each for each in distributions() if re.match(rf"{_NAME}(-|$)", name := _normal(each.name))}
    own = {name: each for name, each in own.items() if _PRIVATE not in (each.metadata.get_all("Classifier") or [])}
    return [_write(folder, name, own[name]) for name in sorted(own)]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _write(folder: Path, name: str, package: Distribution) -> Path:
    module = name.replace("-", "_")
    information = f"{module}-{package.version}.dist-info"
    entries = dict(_files(module))
    entries |= {f"{information}/{each}": text.encode() for each in _COPIED if (text := package.read_text(each))}
    entries[f"{information}/WHEEL"] = _WHEEL.encode()
    record = f"{information}/RECORD"
    lines = [f"{name},{_digest(content)},{len(content)}" for name, content in sorted(entries.items())]
    entries[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    target = folder / f"{module}-{package.version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w") as wheel:
        for name, content in sorted(entries.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, content)
    return target


def _files(module: str) -> Iterator[tuple[str, bytes]]:
    """Yield a package's files with their names in the wheel; lakefeed's own wheel also gets examples and pages."""
    package = Path(str(files(module)))
    found = [(package, file) for file in package.rglob("*")]
    if module == _NAME:
        jar()  # Raises an error if the clone's JVM module is not built; the hint names the command that builds it.
        for name in PACKAGED:
            root = packaged_root(name)
            if root != package:
                found += [(root, file) for file in (root / name, *(root / name).rglob("*"))]
    for root, file in sorted(found):
        relative = file.relative_to(root)
        if file.is_file() and not any(part.startswith((".", "__pycache__")) for part in relative.parts):
            yield f"{module}/{relative.as_posix()}", file.read_bytes()


def _digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
