"""A user runs ``lakefeed run --dashboard``, reads and steers the real feed over HTTP, and no secret leaks."""

import json
import re
import time
from pathlib import Path
from typing import Any

import httpx

from packages.dashboard.tests.dashboards import OPERATOR_TOKEN, VIEWER_TOKEN, bearer
from tests.support.cli import Running
from tests.support.feed import Feed, until

JSON_ROWS = {"json": {"schema_ddl": "id BIGINT"}}
ACTIONS = "/api/feeds/{}/actions"


def test_an_operator_may_pause_resume_and_stop_a_feed_and_a_viewer_may_not(feed: Feed, tmp_path: Path) -> None:
    tokens = {"VIEWER": VIEWER_TOKEN, "OPERATOR": OPERATOR_TOKEN}
    environment = {**feed.environment, **tokens, "LAKEFEED_HOME": str(tmp_path / "home")}
    feed.create_topic(partitions=1)
    feed.send([json.dumps({"id": number}).encode() for number in range(100)])
    declared = [{"name": name.lower(), "role": name.lower(), "token": f"${{{name}}}"} for name in tokens]
    path = feed.write_file(decode=JSON_ROWS, trigger="1 second", dashboard={"tokens": declared})
    running = Running(["run", path, "--dashboard=127.0.0.1:0"], environment, tmp_path / "log")
    shown: list[str] = []
    try:
        running.wait_until_it_says("the dashboard is at http://127.0.0.1:")
        url = re.findall(r"the dashboard is at (\S+)", running.said())[0]
        # The dashboard answers while Spark still starts.
        assert httpx.get(f"{url}/api/feeds", trust_env=False).status_code == 401
        with httpx.Client(base_url=url, headers=bearer(OPERATOR_TOKEN), trust_env=False, timeout=30) as operator:

            def progress() -> dict[str, Any]:
                answer = operator.get(f"/api/feeds/{feed.name}/progress")
                shown.append(answer.text)
                found: dict[str, Any] = answer.json()
                return found

            def act(action: str, token: str = OPERATOR_TOKEN) -> int:
                body = {"action": action, "reason": "a test"}
                answer = operator.post(ACTIONS.format(feed.name), json=body, headers=bearer(token))
                shown.append(answer.text)
                return answer.status_code

            until(lambda: progress()["totals"]["records"] == 100)
            for action in ("pause", "stop"):
                assert act(action, VIEWER_TOKEN) == 403
            assert act("pause") == 202
            until(lambda: progress()["state"] == "paused")
            feed.send([json.dumps({"id": number}).encode() for number in range(100, 150)])
            time.sleep(3)
            assert progress()["totals"]["records"] == 100
            assert act("pause") == 409
            assert act("resume") == 202
            until(lambda: progress()["totals"]["records"] == 150)
            for page in ("history", "events", "graph", "table", "schemas", "dead-letters", "costs", "panels"):
                answer = operator.get(f"/api/feeds/{feed.name}/{page}")
                shown.append(answer.text)
                assert answer.status_code == 200, answer.text
            shown += [operator.get("/metrics").text, operator.get("/").text]
            events = operator.get(f"/api/feeds/{feed.name}/events").json()["events"]
            assert act("stop") == 202
        assert running.process.wait(60) == 0, running.said()
    finally:
        if running.process.poll() is None:
            running.kill()
    messages = [event["message"] for event in events if event["kind"] == "action"]
    assert [message for message in messages if message.startswith("operator from 127.0.0.1 requests: ")] == [
        "operator from 127.0.0.1 requests: pause, reason: a test",
        "operator from 127.0.0.1 requests: resume, reason: a test",
    ]
    assert sum("viewer may not" in message for message in messages) == 2
    everything = "".join([*shown, running.said()])
    for secret in (VIEWER_TOKEN, OPERATOR_TOKEN, environment["AWS_SECRET_ACCESS_KEY"]):
        assert secret not in everything
