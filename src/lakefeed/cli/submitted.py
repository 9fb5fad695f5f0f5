"""Starts lakefeed out of an unpacked application jar: a script for a Python that has no package but PySpark.

``lakefeed package`` copies it into the jar as ``main.py``, beside ``application.json``, ``python/`` and ``pipeline/``;
``io.lakefeed.submit.Application`` runs it there.
"""

import json
import platform
import sys
from pathlib import Path


def _mismatch(built: dict[str, str]) -> str | None:
    """Return how this machine differs from the one that the packages were taken from."""
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
    """Run ``lakefeed run`` with the pipeline of the jar and this script's arguments, and exit."""
    folder = Path(__file__).parent
    built = json.loads((folder / "application.json").read_text("utf-8"))
    if (problem := _mismatch(built)) is not None:
        hint = "set spark.pyspark.python to a Python of that version, or package the pipeline with this one"
        print(f"error: {problem}\n  next:  {hint}", file=sys.stderr)
        sys.exit(2)
    sys.path.insert(0, str(folder / "python"))
    from lakefeed.cli import main as lakefeed

    lakefeed(["run", str(folder / "pipeline" / built["pipeline"]), *sys.argv[1:]])


if __name__ == "__main__":
    main()
