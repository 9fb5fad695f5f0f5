"""Keys and values that attack the programs that show them: scripts, control and direction characters, 1 MB of text."""

import json
import re
import urllib.request
from pathlib import Path

from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from tests.support.cli import lakefeed
from tests.support.drivers import driver
from tests.support.feed import Feed, until
from tests.support.openlineage import problems, server

HOSTILE = "\x1b]0;pwned\x07\x1b[2J\x9b31m\u202egnp.exe\u2066</script><script>alert(1)</script>\"'\r\n\ndata: x\n# HELP"
# These characters must not appear unescaped in JSON, a log, a terminal or an exposition.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
MOST_BYTES = 300_000
DETAILS = ("progress", "history", "events", "graph", "table", "schemas", "dead-letters", "costs", "panels")


def send(feed: Feed) -> None:
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers})
    values = [
        b'{"id": 1}',
        HOSTILE.encode(),
        HOSTILE.encode() + b"x" * 900_000,
        b"\xff\xfe\x1b[31m",
        b"{" + b"[" * 5000,
    ]
    for value in values:
        producer.produce(feed.topic, key=HOSTILE.encode(), value=value)
    assert producer.flush(30) == 0


def test_no_view_is_harmed_by_hostile_keys_and_values(feed: Feed, tmp_path: Path) -> None:
    environment = {**feed.environment, "LAKEFEED_HOME": str(tmp_path / "home")}
    feed.create_topic(partitions=1)
    send(feed)
    texts: dict[str, str] = {}
    with server() as (lineage, sent, _):
        path = feed.write_file(
            decode={"json": {"schema_ddl": "id BIGINT"}, "metadata": ["key", "topic", "partition", "offset"]},
            dead_letters={"table": f"lake.{feed.name}.letters"},
            lineage={"url": lineage, "every": "1 second"},
        )
        with driver(path, environment, tmp_path / "log", "--dashboard=127.0.0.1:0") as ask:
            own = f"/api/feeds/{feed.name}"
            until(lambda: json.loads(ask("/progress"))["totals"]["dead_letters"] == 4)
            for name in ("/progress", "/history", "/health", "/api/feeds", *(f"{own}/{detail}" for detail in DETAILS)):
                texts[name] = ask(name)
                json.loads(texts[name])
            texts["/metrics"] = ask("/metrics")
            families = {family.name: family for family in text_string_to_metric_families(texts["/metrics"])}
            assert families["lakefeed_dead_letters"].samples[0].value == 4
            page = re.findall(r"the dashboard is at (http://[^\s\"]+)", (tmp_path / "log").read_text())[0]
            texts["stream"] = stream(page, feed.name, events=6)
            done = lakefeed("status", path, environment=environment, status=None)
            texts["lakefeed status"] = done.stdout + done.stderr
        texts["log"] = (tmp_path / "log").read_text()
        texts["lineage"] = json.dumps(sent, ensure_ascii=False)
    for name, text in texts.items():
        found = CONTROLS.search(text)
        assert found is None, (name, text[max(0, found.start() - 100) :][:200])
        assert len(text.encode()) < MOST_BYTES, name
    assert "alert(1)" in texts[f"{own}/dead-letters"]  # The answer may contain a script, because JSON is not executed.
    assert all(problems(event) == [] for event in sent)
    *logged, summary = texts["log"].splitlines()
    assert summary.startswith(f"{feed.name}: 1 batch, 5 records, 1 row")
    for line in logged:
        json.loads(line)


def stream(page: str, feed: str, *, events: int) -> str:
    """Return the first `events` server-sent events; check that each has a name and a single line of JSON."""
    lines: list[str] = []
    with urllib.request.urlopen(f"{page.rstrip('/')}/api/stream?feed={feed}", timeout=30) as answer:
        while sum(line.startswith("data:") for line in lines) < events:
            lines.append(answer.readline().decode().rstrip("\n"))
    for line in lines:
        kind, _, text = line.partition(": ")
        assert kind in ("", "id", "event", "data"), line
        if kind == "data":
            json.loads(text)
    return "\n".join(lines)
