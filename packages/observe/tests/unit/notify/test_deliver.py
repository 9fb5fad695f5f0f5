"""Messages are delivered to real web servers, mail servers and programs; some of them hang or refuse."""

import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lakefeed.config.base import validated
from lakefeed.messages.redaction import remember
from lakefeed.monitor.model import Driver
from lakefeed_observe.notify.deliver import NotDelivered, deliver
from lakefeed_observe.notify.message import Message, Occurrence
from lakefeed_observe.notify.settings import NotifyTarget
from packages.observe.tests.receivers import mailbox, web_hook
from tests.support.clock import until
from tests.support.misbehaving import Manner, misbehaving
from tests.support.servers.authority import Authority

HOSTILE = "<!channel> <http://evil.example|click> @everyone &\r\nBcc: evil@example.com\x1b[2J\u202e"
SECRET = "canary-9d2f71c0"


def message(what: str = "the topic is not there", **fields: Any) -> Message:
    finding = Occurrence(what=what, where="trips", hint="create it")
    given = {"trigger": "failed", "status": "happened", "feed": "taxi", "since": 1e9, "at": 1e9, "finding": finding}
    return Message(driver=Driver(host="box", pid=7), **{**given, **fields})


def webhook(url: str, **settings: Any) -> NotifyTarget:
    return validated(NotifyTarget, "test", webhook={"url": url, **settings})


def mail(port: int, **settings: Any) -> NotifyTarget:
    given = {"host": "127.0.0.1", "port": port, "from": "lakefeed@example.com", "to": ["ops@example.com"]}
    return validated(NotifyTarget, "test", mail={**given, **settings})


def command(*words: str, **settings: Any) -> NotifyTarget:
    return validated(NotifyTarget, "test", command={"run": list(words), **settings})


def refusal(target: NotifyTarget, sent: Message | None = None, **options: Any) -> NotDelivered:
    with pytest.raises(NotDelivered) as error:
        deliver(target, sent or message(), **options)
    return error.value


def test_a_value_becomes_no_mention_and_no_link_in_slack() -> None:
    with web_hook() as hook:
        target = webhook(hook.url + "/services/T0/B0/x", format="slack")
        assert deliver(target, message(HOSTILE, link="https://dash.example/#/feed/taxi")) == "HTTP status 200: ok"
    [body], [path] = hook.bodies, hook.paths
    text = body["text"]
    assert path == "/services/T0/B0/x"
    assert "<!channel>" not in text
    assert "@everyone" not in text
    assert "&lt;!channel&gt; &lt;http://evil.example|click&gt;" in text
    assert text.count("<") == text.count(">") == 1
    assert text.endswith("\n<https://dash.example/#/feed/taxi|dashboard>")
    assert text.splitlines()[0] == "*taxi: failed*"
    for bad in ("\x1b", "\u202e", "\r"):
        assert bad not in text


def test_an_alert_and_its_resolution_have_the_same_labels() -> None:
    with web_hook() as hook:
        target = webhook(hook.url, format="alertmanager")
        deliver(target, message(trigger="lag", status="firing"))
        deliver(target, message(trigger="lag", status="resolved", at=1e9 + 60))
        deliver(target, message())
    [[fires], [is_over], [once]] = hook.bodies
    assert hook.paths == ["/api/v2/alerts"] * 3
    assert fires["labels"] == is_over["labels"]
    assert fires["labels"] == {"alertname": "LakefeedLag", "feed": "taxi", "trigger": "lag", "severity": "warning"}
    assert (fires["startsAt"], fires["endsAt"]) == ("2001-09-09T01:46:40.000Z", "2001-09-09T01:51:40.000Z")
    assert is_over["endsAt"] == "2001-09-09T01:47:40.000Z"
    assert once["endsAt"] == "2001-09-09T02:46:40.000Z"


def test_the_format_alertmanager_webhook_sends_a_group_of_one_alert() -> None:
    with web_hook() as hook:
        deliver(webhook(hook.url, format="alertmanager_webhook"), message(trigger="lag", status="resolved"))
    [body] = hook.bodies
    assert (body["version"], body["status"], body["alerts"][0]["status"]) == ("4", "resolved", "resolved")
    assert body["commonLabels"]["feed"] == "taxi"


def test_the_format_json_sends_the_whole_message_with_the_configured_headers() -> None:
    with web_hook() as hook:
        deliver(webhook(hook.url, headers={"Authorization": "Bearer x"}), message(HOSTILE, more=3))
    [body], [headers] = hook.bodies, hook.headers
    assert headers["authorization"] == "Bearer x"
    assert body["what"].startswith("<!channel> <http://evil.example|click>")
    assert "\n" not in body["what"]
    assert (body["feed"], body["trigger"], body["more"], body["hint"]) == ("taxi", "failed", 3, "create it")


@pytest.mark.parametrize(
    ("status", "is_transient"), [(500, True), (503, True), (429, True), (404, False), (400, False), (302, False)]
)
def test_the_http_status_decides_whether_the_message_is_retried(status: int, is_transient: bool) -> None:
    remember([SECRET])
    with web_hook(status, answer=f"no such hook: {SECRET}".encode()) as hook:
        error = refusal(webhook(f"{hook.url}/{SECRET}"))
    assert error.is_transient == is_transient
    assert f"HTTP status {status}" in error.reason
    assert SECRET not in error.reason


@pytest.mark.waits
def test_an_attempt_ends_in_time_whatever_the_server_does() -> None:
    manners: list[Manner] = ["silent", "drip", "drip_headers", "endless", "cut", "garbage"]

    def seconds(manner: Manner, kind: str) -> float:
        with misbehaving(manner) as address:
            port = int(address.split(":")[1])
            target = webhook(f"http://{address}/{SECRET}") if kind == "webhook" else mail(port, security=kind)
            began = time.monotonic()
            assert SECRET not in refusal(target, seconds=1.0).reason
            return time.monotonic() - began

    cases = [(manner, kind) for manner in manners for kind in ("webhook", "starttls", "tls")]
    with ThreadPoolExecutor(len(cases)) as threads:
        assert all(each < 5 for each in threads.map(lambda case: seconds(*case), cases))


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_mail_arrives_over_tls_with_a_login(security: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    made = authority.sign("server", "127.0.0.1")
    with mailbox(certificate=(made.certificate, made.key), security=security, password=SECRET) as server:
        login = {"security": security, "ca_file": authority.file, "user": "feeder", "password": SECRET}
        target = mail(server.port, **login, to=["ops@example.com", "Zoë <zoe@example.com>"])
        assert deliver(target, message(HOSTILE)) == "accepted for 2 of 2 recipients"
        error = refusal(mail(server.port, **{**login, "password": "wrong"}))
        assert (error.is_transient, "535" in error.reason) == (False, True)
        error = refusal(mail(server.port, security=security))
        assert "certificate is not trusted" in error.reason
    assert server.logins == ["feeder"]
    [got] = server.mails
    assert got["Subject"].startswith("[lakefeed] taxi: failed: <!channel>")
    assert got["Bcc"] is None
    assert "\n" not in got["Subject"]
    assert server.recipients == [["ops@example.com", "zoe@example.com"]]
    assert got["To"].addresses[1].display_name == "Zoë"
    body = got.get_content()
    assert "next: create it" in body
    assert "\x1b" not in body


def test_a_password_is_not_sent_to_a_server_without_tls() -> None:
    with mailbox() as server:
        error = refusal(mail(server.port, user="feeder", password=SECRET))
        assert "no STARTTLS" in error.reason
        assert deliver(mail(server.port, security="none"), message()) == "accepted for 1 of 1 recipients"


WRITE_INPUT = """
import json, os, sys
json.dump({"stdin": json.load(sys.stdin), "argv": sys.argv, "environment": dict(os.environ)}, open(sys.argv[1], "w"))
"""


def test_a_command_gets_the_message_but_not_the_drivers_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-driver")
    written = tmp_path / "written.json"
    target = command(sys.executable, "-c", WRITE_INPUT, str(written), environment={"TOKEN": SECRET})
    assert deliver(target, message("; rm -rf /")) == "the program exited with status 0"
    got = json.loads(written.read_text())
    assert (got["stdin"]["what"], got["stdin"]["feed"]) == ("; rm -rf /", "taxi")
    variables = got["environment"]
    assert (variables["LAKEFEED_FEED"], variables["LAKEFEED_TRIGGER"]) == ("taxi", "failed")
    assert variables["TOKEN"] == SECRET
    assert "AWS_SECRET_ACCESS_KEY" not in variables
    assert SECRET not in json.dumps(got["argv"])


@pytest.mark.waits
def test_a_command_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 300 & echo $! $$ > {pids}.part; mv {pids}.part {pids}; trap '' TERM; yes >&2"
    began = time.monotonic()
    error = refusal(command("/bin/sh", "-c", script, timeout="1 seconds"))
    assert time.monotonic() - began < 10
    assert (error.reason, error.is_transient) == ("the program exceeded its timeout and was killed", False)
    for pid in map(int, pids.read_text().split()):
        until(lambda pid=pid: not _runs(pid))  # type: ignore[misc]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIG_DFL)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_error_of_a_failed_command_has_the_exit_status_and_stderr() -> None:
    remember([SECRET])
    error = refusal(command("/bin/sh", "-c", "echo no pager $TOKEN >&2; exit 3", environment={"TOKEN": SECRET}))
    assert error.reason == "the program exited with status 3: no pager **********"
    assert not error.is_transient
    assert refusal(command("/bin/sh", "-c", "exit 75")).is_transient
    assert "No such file" in refusal(command("/no/such/program")).reason


def test_a_printed_target_shows_no_secrets() -> None:
    target = webhook(f"https://hooks.example/{SECRET}")
    assert SECRET not in repr(target) + str(target)
    assert SECRET not in repr(mail(25, user="u", password=SECRET))


def test_the_reason_hides_the_secret_path_of_a_url_that_the_server_quotes() -> None:
    path = "/services/T00000000/B00000000/canary-path-99"
    with web_hook(404, answer=f"The URL {path} was not found, nor canary-query-98".encode()) as hook:
        reason = refusal(webhook(f"{hook.url}{path}?key=1&canary-query-98")).reason
    assert "was not found" in reason
    assert "canary" not in reason
    assert "T00000000" not in reason
