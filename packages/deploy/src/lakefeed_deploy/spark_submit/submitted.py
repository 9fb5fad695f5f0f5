"""Start lakefeed from an unpacked application jar, in a Python that has no other package than PySpark.

``lakefeed deploy package`` copies this file into the jar as ``main.py``, beside ``application.json``, ``python/`` and
``pipeline/``; ``io.lakefeed.submit.Application`` unpacks the jar and runs ``main.py``.
"""

import json
import platform
import sys
import time
from pathlib import Path

SUPERVISED = "--supervised"
"""The first argument of a driver for which the cluster starts a new one after every failure, without limit."""
_FIRST_WAIT, _LONGEST_WAIT = 10, 300
_RECOVERED_SECONDS = 600
_FAILURES = Path("lakefeed-failures")
"""A file in the driver's folder on the worker, which counts the failures since the last success."""


def _mismatch(built: dict[str, str]) -> str | None:
    """Return how this machine's versions differ from the jar's; None if they are equal."""
    import pyspark

    here = {
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "system": f"{platform.system()} {platform.machine()}",
        "spark": ".".join(pyspark.__version__.split(".")[:2]),
    }
    for part, version in here.items():
        if version != built[part]:
            return f"the driver's {part} is {version} ({sys.executable}), and the application jar is for {built[part]}"
    return None


def main() -> None:
    """Run ``lakefeed run`` with the jar's pipeline and this script's arguments."""
    arguments = sys.argv[1:]
    if arguments[:1] != [SUPERVISED]:
        _run(arguments)
        return
    began = time.monotonic()
    try:
        _run(arguments[1:])
    except SystemExit as ended:
        if ended.code not in (None, 0):
            _wait(lasted=time.monotonic() - began)
        raise


def _run(arguments: list[str]) -> None:
    folder = Path(__file__).parent
    built = json.loads((folder / "application.json").read_text("utf-8"))
    if (problem := _mismatch(built)) is not None:
        hint = "set spark.pyspark.python to a Python of that version, or run lakefeed deploy package with this one"
        print(f"error: {problem}\n  next:  {hint}", file=sys.stderr)
        sys.exit(2)
    sys.path.insert(0, str(folder / "python"))
    from lakefeed.cli import main as lakefeed

    lakefeed(["run", str(folder / "pipeline" / built["pipeline"]), *arguments])


def _wait(*, lasted: float) -> None:
    """Wait before this program ends with an error, twice as long after every failure, to spare logs and servers."""
    from pyspark import SparkContext

    if (context := SparkContext._active_spark_context) is not None:
        context.stop()  # Stop Spark, so that the executors are free while the driver waits.
    before = int(_FAILURES.read_text()) if _FAILURES.exists() and lasted < _RECOVERED_SECONDS else 0
    _FAILURES.write_text(str(before + 1))
    seconds = min(_FIRST_WAIT * 2**before, _LONGEST_WAIT)
    times = f"{before + 1} times in a row" if before else "once"
    print(
        f"the driver has failed {times}: it ends in {seconds} s, then the cluster restarts it\n"
        f"  next:  spark-class org.apache.spark.deploy.Client kill MASTER {Path.cwd().name} ends it for good",
        file=sys.stderr,
        flush=True,
    )
    time.sleep(seconds)


if __name__ == "__main__":
    main()
