"""Run decoders in a JVM without Spark: thousands of records a second, with the cost of decoding each.

The Java part is ``tests/jvm``, compiled once for each test run. For hostile payloads of a format, pass
``Probe.hostile`` the options of its decoder's catalog and the payloads:

    costs = probe.hostile({"format": "json", "reader-type": …}, payloads)

The call asserts the rule for records of all formats: each becomes a row or an error, with at most 1 ms of CPU time per
KB, and at most 64 times the record's size plus 64 KB of memory.
"""

import base64
import importlib.util
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import lakefeed
from lakefeed.clients.spark import jars
from lakefeed.clients.spark.jvm import installed_jars

JAVA = Path(__file__).parent.parent / "jvm"
MODULE = Path(lakefeed.__file__).parent / "lakefeed-jvm.jar"
ROUNDS = 3
WARM_UP = 10


@dataclass(frozen=True)
class Cost:
    """The cost of decoding one payload: the lowest of several runs."""

    payload: bytes
    error: str | None
    row: bool
    nanos: int
    bytes: int

    @property
    def within_the_rule(self) -> bool:
        size = len(self.payload)
        return self.nanos <= 1_000 * max(size, 1024) and self.bytes <= 64 * size + 64 * 1024

    def __str__(self) -> str:
        shown = self.payload[:40].hex() + ("…" if len(self.payload) > 40 else "")
        return (
            f"{len(self.payload)} bytes {shown}: {self.nanos / 1e6:.2f} ms, {self.bytes} bytes, {self.error or 'a row'}"
        )


class Probe:
    """A running JVM; ``close`` ends it."""

    def __init__(self, classes: Path) -> None:
        spark = importlib.util.find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        needed = [MODULE, *installed_jars(), Path(spark.origin).parent / "jars" / "*", *jars.fetch(["spark"])]
        class_path = ":".join(map(str, [classes, *needed]))
        sources = sorted(map(str, JAVA.rglob("*.java")))
        subprocess.run(
            ["javac", "-nowarn", "-proc:none", "--release", "17", "-d", classes, "-cp", class_path, *sources],
            check=True,
        )
        options = ["-Xmx1g", "-Xss1m", "-XX:+UseSerialGC", "--add-opens=java.base/java.nio=ALL-UNNAMED"]
        self._jvm = subprocess.Popen(
            ["java", *options, "-cp", class_path, "io.lakefeed.decode.Probe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, **request: Any) -> list[dict[str, Any]]:
        """Send a request to ``Probe.java``; return its answer."""
        requests, answers = _open(self._jvm.stdin), _open(self._jvm.stdout)
        requests.write(json.dumps(request) + "\n")
        requests.flush()
        answer = json.loads(answers.readline())
        assert "failed" not in answer, answer["failed"]
        result: list[dict[str, Any]] = answer["result"]
        return result

    def decode(self, options: Mapping[str, str], payloads: Sequence[bytes]) -> list[dict[str, Any]]:
        """Decode payloads; return the value in ``Canonical.java``'s form, the schema id and the error of each."""
        return self.ask(do="decode", options=dict(options), payloads=[*map(base64_text, payloads)])

    def type_of(self, options: Mapping[str, str]) -> dict[str, Any]:
        """Return the type of the decoded value, as the JSON of a StructType."""
        [found] = self.ask(do="type", options=dict(options))
        return found

    def costs(self, options: Mapping[str, str], payloads: Sequence[bytes]) -> list[Cost]:
        """Measure the cost of decoding each payload."""
        found = self.ask(
            do="measure", options=dict(options), payloads=[*map(base64_text, payloads)], warm_up=WARM_UP, rounds=ROUNDS
        )
        return [Cost(payload=payload, **each) for payload, each in zip(payloads, found, strict=True)]

    def hostile(self, options: Mapping[str, str], payloads: Sequence[bytes]) -> list[Cost]:
        """Measure the costs; check that they are within the limits, and that each payload becomes a row or an error."""
        costs = self.costs(options, payloads)
        for each in costs:
            assert each.row != (each.error is not None), each
            assert each.within_the_rule, each
        return costs

    def close(self) -> None:
        """End the JVM."""
        _open(self._jvm.stdin).close()
        self._jvm.wait(30)
        _open(self._jvm.stdout).close()


def base64_text(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


def _open(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
