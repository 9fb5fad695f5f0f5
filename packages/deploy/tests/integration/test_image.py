"""Build the image of ``lakefeed deploy image`` by the steps of its Dockerfile, and run feeds in it.

No container engine is needed: the steps run as root on Linux, in root file systems of Debian that the test makes. The
steps use the network as a build does: for Debian packages, Python packages and jars.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from lakefeed.clients.spark.jars import cache_directory
from lakefeed_local.stack import Endpoints
from tests.support.cli import lakefeed
from tests.support.dockerfile import Container, Image, build
from tests.support.feed import JSON_ROWS, Feed, records

RELEASE = "bookworm"
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
BASE = f"debian:{RELEASE}-slim@sha256:{'0' * 64}"
APP = "local:///opt/lakefeed/app.py"
HERE = "127.0.0.1"
# Besides Python, the image has only tools that Spark's scripts, lakefeed or Hadoop call.
TOOLS = {"bash", "sh", "dash", "env", "rm", "chmod", "tini"}

# Spark's default options for Java 17, without their prefix java.base/.
OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def network() -> tuple[dict[str, str], dict[str, Path]]:
    """Return the environment variables and the files that this machine needs to reach package registries."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_INDEX_URL", "LAKEFEED_MAVEN_REPOSITORY")
    site = {name: os.environ[name] for name in (*names, *map(str.lower, names)) if name in os.environ}
    files = {path: Path(path) for path in ("/etc/resolv.conf", "/etc/hosts")}
    if certificates := os.environ.get("SSL_CERT_FILE"):
        files["/run/site/ca.pem"] = Path(certificates)
        site |= {"SSL_CERT_FILE": "/run/site/ca.pem", "PIP_CERT": "/run/site/ca.pem"}
    return site, files


@pytest.fixture(scope="module")
def debian() -> Image:
    """Create a root file system as small as Debian's slim image, or take it from the cache."""
    assert os.geteuid() == 0, "only root can change its root file system: run this test as root"
    kept = cache_directory() / "debian" / RELEASE
    if not kept.exists():
        work = kept.parent / f"{RELEASE}.{os.getpid()}"
        work.mkdir(parents=True)
        subprocess.run(["apt-get", "download", "debootstrap"], cwd=work, check=True, capture_output=True)
        subprocess.run(["dpkg-deb", "--extract", *map(str, work.glob("*.deb")), work / "tool"], check=True)
        tool = {**os.environ, "DEBOOTSTRAP_DIR": str(work / "tool/usr/share/debootstrap")}
        program = str(work / "tool/usr/sbin/debootstrap")
        command = [program, "--variant=minbase", RELEASE, str(work / "root"), MIRROR]
        done = subprocess.run(command, env=tool, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        (work / "root").rename(kept)
        shutil.rmtree(work)
    return Image(kept)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that ``deploy image`` writes."""
    folder = tmp_path_factory.mktemp("context")
    done = lakefeed("deploy", "image", "--to", folder, "--base-image", BASE, "--spark-image", "cluster/spark:4.1")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def image(debian: Image, context: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """Build the image by the steps of the Dockerfile."""
    site, files = network()
    folder = tmp_path_factory.mktemp("image")
    yield build(context / "Dockerfile", images={BASE: debian}, folder=folder, site=site, mounts=files)
    shutil.rmtree(folder)


@pytest.fixture
def scratch(tmp_path: Path) -> dict[str, Path]:
    """Return the mounts of a pod with a read-only root: an empty /tmp, and the files for looking up host names."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    os.chown(folder, 185, 185)
    return {"/tmp": folder, "/etc/resolv.conf": Path("/etc/resolv.conf"), "/etc/hosts": Path("/etc/hosts")}


def run(image: Image, *arguments: str, mounts: dict[str, Path], **environment: str) -> subprocess.CompletedProcess[str]:
    command = image.command(*image.entrypoint, *arguments, environment=environment, mounts=mounts)
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=900)


def test_the_image_has_only_needed_tools_and_an_exact_bill_of_materials(
    image: Image, context: Path, scratch: dict[str, Path]
) -> None:
    found = {
        file.name for folder in ("usr/bin", "usr/sbin", "usr/local/bin") for file in (image.root / folder).iterdir()
    }
    assert {name for name in found if not name.startswith("python3")} == TOOLS
    assert image.user == "185:185"
    checked = run(image, "jars", "verify", "--group", "spark", mounts=scratch)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    code = (
        "import os; print(os.getuid(), os.getgid(), os.access('/opt/lakefeed', os.W_OK)); open('/opt/lakefeed/x', 'w')"
    )
    seen = image.command("/opt/lakefeed/venv/bin/python", "-c", code, mounts=scratch)
    tried = subprocess.run(seen, capture_output=True, text=True, check=False)
    assert tried.stdout.startswith("185 185 False"), tried
    assert "Read-only file system" in tried.stderr

    # The bill of materials in the image lists exactly the packages of the package managers, and the jars.
    text = (image.root / "opt/lakefeed/sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    kinds = Counter(part["purl"].partition("/")[0] for part in json.loads(text)["components"])
    jars = list((image.root / "opt/spark/jars").glob("*.jar"))
    assert kinds["pkg:maven"] == len(jars) - 1  # lakefeed's own jar is not listed.
    distributions = {path.name for path in (image.root / "opt/lakefeed/venv/lib").glob("*/site-packages/*.dist-info")}
    assert kinds["pkg:pypi"] == len(distributions)
    assert kinds["pkg:deb"] > 80
    # The bill beside the Dockerfile, which was written before the build, names the same versions.
    planned = {part["purl"] for part in json.loads((context / "sbom.cdx.json").read_text())["components"]}
    built = {part["purl"] for part in json.loads(text)["components"]}
    normal = {purl.replace("_", "-").replace(".", "-").lower() for purl in built}
    missing = {purl for purl in planned if purl.replace("_", "-").replace(".", "-").lower() not in normal}
    assert missing == set()


def test_the_demo_runs_as_user_185_with_a_read_only_root(image: Image, scratch: dict[str, Path]) -> None:
    site, files = network()
    mounts = {**scratch, **{name: file for name, file in files.items() if name.startswith("/run/site")}}
    done = run(image, "demo", "--rows", "20000", "--output", "json", mounts=mounts, **site)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout)["verified"] is True


def feed_file(feed: Feed, rows: int, **blocks: object) -> Path:
    feed.create_topic(partitions=2)
    feed.send(records(rows))
    written = feed.write_file(source=feed.source(max_records_per_batch=500), decode=JSON_ROWS, **blocks)
    written.chmod(0o644)
    return written


def in_pod(
    stack: Endpoints, feed: Feed, scratch: dict[str, Path], file: Path, settings: dict[str, str]
) -> dict[str, Path]:
    """Return the mounts of a driver's pod: scratch, the pipeline file, and the properties that the operator writes."""
    conf = feed.folder / "conf"
    conf.mkdir(exist_ok=True)
    lines = [f"{key}={value}" for key, value in settings.items()]
    (conf / "spark.properties").write_text("\n".join(lines))
    # Give the catalog's SQLite file to user 185, who must write it; a cluster would have its catalog on a server.
    folder = stack.catalog_file.parent
    for each in (folder, *folder.glob(f"{stack.catalog_file.name}*")):
        each.chmod(0o777)
    return {**scratch, "/opt/spark/conf": conf, "/etc/lakefeed/pipeline.yaml": file, str(folder): folder}


SUBMITTED = ("--properties-file", "/opt/spark/conf/spark.properties", "--class", "org.apache.spark.deploy.PythonRunner")
DRIVER = ("driver", *SUBMITTED, APP, "run", "/etc/lakefeed/pipeline.yaml")


def start_driver(image: Image, feed: Feed, mounts: dict[str, Path], *arguments: str) -> Container:
    environment = {**feed.environment, "SPARK_DRIVER_BIND_ADDRESS": HERE, "SPARK_CONF_DIR": "/opt/spark/conf"}
    command = image.command(*image.entrypoint, *DRIVER, *arguments, environment=environment, mounts=mounts)
    return Container(command, feed.folder / f"driver{time.monotonic_ns()}.log")


def test_a_driver_in_the_image_ends_after_sigterm_and_resumes_later(
    stack: Endpoints, image: Image, feed: Feed, scratch: dict[str, Path]
) -> None:
    file = feed_file(feed, 5_000, trigger="1 second")
    mounts = in_pod(stack, feed, scratch, file, {"spark.master": "local[2]", "spark.driver.memory": "1g"})
    driver = start_driver(image, feed, mounts, "--exit-on-signal", "143")
    wait_for(driver, ": batch 2")
    driver.send(signal.SIGTERM)
    assert driver.process.wait(120) == 143, driver.said()
    assert "stopping after the current batch" in driver.said()
    landed = len(feed.rows())
    assert 0 < landed < 5_000
    driver = start_driver(image, feed, mounts, "--once", "--exit-on-signal", "143")
    assert driver.process.wait(600) == 0, driver.said()
    assert sorted(row["id"] for row in feed.rows()) == list(range(5_000))


def test_an_executor_in_the_image_runs_the_tasks_of_a_feed(
    stack: Endpoints, image: Image, feed: Feed, scratch: dict[str, Path]
) -> None:
    """Start the executor as Spark's Kubernetes scheduler does; the scheduler of this driver accepts any executor."""
    file = feed_file(feed, 2_000)
    port, master_port = free_port(), free_port()
    master = f"spark://{HERE}:{master_port}"
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with (feed.folder / "master.log").open("wb") as log:
        program = [str(spark_class), "org.apache.spark.deploy.master.Master", "--host", HERE]
        cluster = subprocess.Popen([*program, "--port", str(master_port), "--webui-port", "0"], stdout=log, stderr=log)
    settings = {"spark.master": master, "spark.driver.port": str(port), "spark.driver.host": HERE}
    mounts = in_pod(stack, feed, scratch, file, {**settings, "spark.executor.memory": "512m"})
    (feed.folder / "executor").mkdir()
    os.chown(feed.folder / "executor", 185, 185)
    options = [*(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED), f"-Dspark.driver.port={port}"]
    own = {
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@{HERE}:{port}",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": "spark-test",
        "SPARK_EXECUTOR_POD_IP": HERE,
        "SPARK_EXECUTOR_POD_NAME": "test-exec-1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        # Spark's Kubernetes scheduler passes each JVM option in a separate variable.
        **{f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(options)},
    }
    running: list[Container] = []
    try:
        driver = start_driver(image, feed, mounts, "--once")
        running.append(driver)
        wait_for_port(port, driver)
        command = image.command(
            *image.entrypoint, "executor", environment=own, mounts={**scratch, "/tmp": feed.folder / "executor"}
        )
        executor = Container(command, feed.folder / "executor.log")
        running.append(executor)
        assert driver.process.wait(300) == 0, driver.said() + executor.said()
        executor.process.wait(60)  # The executor ends when its driver has ended.
    finally:
        for each in running:
            each.process.kill()
        cluster.terminate()
        cluster.wait(30)
    assert sorted(row["id"] for row in feed.rows()) == list(range(2_000))


def test_lakefeed_runs_in_the_spark_image_of_a_cluster(
    stack: Endpoints, debian: Image, context: Path, feed: Feed, scratch: dict[str, Path], tmp_path: Path
) -> None:
    """The image has the layout of Spark's own image: Spark and PySpark in /opt/spark, nothing of lakefeed."""
    site, files = network()
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    installed = Path(pyspark.__file__).parent
    shutil.copytree(installed, cluster / "spark/python/pyspark", ignore=shutil.ignore_patterns("jars", "bin", "lib"))
    for folder in ("jars", "bin"):
        shutil.copytree(installed / folder, cluster / "spark" / folder)
    shutil.copytree(installed / "python/lib", cluster / "spark/python/lib")
    (cluster / "Dockerfile").write_text(
        f"FROM {BASE}\n"
        "RUN apt-get update && apt-get install --yes --no-install-recommends default-jre-headless python3-venv\n"
        "RUN useradd --uid 185 spark\n"
        "COPY spark /opt/spark\n"
        "ENV SPARK_HOME=/opt/spark JAVA_HOME=/usr/lib/jvm/default-java\n"
        "USER 185:185\n"
    )
    theirs = build(cluster / "Dockerfile", images={BASE: debian}, folder=tmp_path / "theirs", site=site, mounts=files)
    over = build(
        context / "Dockerfile.spark",
        images={"cluster/spark:4.1": theirs},
        folder=tmp_path / "over",
        site=site,
        mounts=files,
    )
    file = feed_file(feed, 2_000)
    mounts = in_pod(stack, feed, scratch, file, {"spark.master": "local[2]"})
    submit = ["/opt/spark/bin/spark-submit", "--properties-file", "/opt/spark/conf/spark.properties", APP]
    command = over.command(
        *submit, "run", "/etc/lakefeed/pipeline.yaml", "--once", environment=feed.environment, mounts=mounts
    )
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-5000:]
    assert sorted(row["id"] for row in feed.rows()) == list(range(2_000))
    shutil.rmtree(tmp_path / "over")
    shutil.rmtree(tmp_path / "theirs")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HERE, 0))
        port: int = listener.getsockname()[1]
    return port


def wait_for(container: Container, text: str, *, timeout: float = 240) -> None:
    deadline = time.monotonic() + timeout
    while text not in container.said():
        assert container.process.poll() is None, container.said()
        assert time.monotonic() < deadline, container.said()
        time.sleep(0.1)


def wait_for_port(port: int, container: Container) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert container.process.poll() is None, container.said()
        with socket.socket() as probe:
            if probe.connect_ex((HERE, port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(container.said())
