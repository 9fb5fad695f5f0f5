"""Tokens and sessions give access to the dashboard; requests of other sites and users are refused."""

import hmac
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed_dashboard import access, guard
from packages.dashboard.tests.dashboards import (
    OPERATOR_TOKEN,
    PASSWORD,
    VIEWER_TOKEN,
    address,
    bearer,
    browser,
    dashboard,
    log_in,
    monitor_of,
    with_login,
    without_login,
)

PATHS = (
    "/api/session",
    "/api/feeds",
    "/api/feeds/hidden-name/progress",
    "/api/feeds/hidden-name/history",
    "/api/feeds/hidden-name/events",
    "/api/feeds/hidden-name/panels",
    "/api/feeds/other/progress",
    "/api/stream?feed=hidden-name",
    "/metrics",
    "/health",
    "/progress",
    "/history",
    "/no-such-page",
)


@pytest.fixture(scope="module")
def monitor() -> FeedMonitor:
    return monitor_of()


@pytest.fixture(scope="module")
def closed(monitor: FeedMonitor) -> Iterator[str]:
    with dashboard(monitor, with_login()) as served:
        yield served


@pytest.fixture(scope="module")
def opened() -> Iterator[str]:
    with dashboard(monitor_of(), without_login()) as served:
        yield served


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("given", [None, "Bearer wrong", "Basic YW5uYTp4", f"bearer{OPERATOR_TOKEN}"])
def test_no_path_shows_a_feed_name_without_a_login(closed: str, path: str, given: str | None) -> None:
    headers = {"Authorization": given} if given else {}
    answer = httpx.get(closed + path, headers=headers, trust_env=False)
    assert answer.status_code in (401, 429)  # The status is 429 if earlier tests have sent too many wrong tokens.
    assert set(answer.json()) <= {"error", "hint"}
    assert "hidden-name" not in answer.text
    assert "lakefeed" not in answer.text


@pytest.mark.parametrize("query", ["token={}", "access_token={}", "authorization=Bearer%20{}"])
def test_a_token_in_the_query_string_is_ignored(closed: str, query: str) -> None:
    answer = httpx.get(f"{closed}/api/feeds?{query.format(OPERATOR_TOKEN)}", trust_env=False)
    assert (answer.status_code, "hidden-name" in answer.text) == (401, False)


def test_a_page_without_a_login_redirects_to_the_login(closed: str) -> None:
    answer = httpx.get(closed, trust_env=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    page = httpx.get(f"{closed}/login", trust_env=False)
    assert (page.status_code, "hidden-name" in page.text) == (200, False)
    assert httpx.get(f"{closed}/static/login.css", trust_env=False).status_code == 200


@pytest.mark.parametrize(("token", "role"), [(VIEWER_TOKEN, "viewer"), (OPERATOR_TOKEN, "operator")])
def test_a_token_grants_its_role(closed: str, token: str, role: str) -> None:
    with httpx.Client(base_url=closed, headers=bearer(token), trust_env=False) as client:
        assert client.get("/api/session").json()["role"] == role
        assert client.get("/api/feeds").json()["feeds"][0]["feed"] == "hidden-name"
        assert client.get("/metrics").text.startswith("# HELP lakefeed_")
        assert client.get("/health").json()["live"] is True


def test_a_viewer_may_not_send_actions_by_token_or_session(closed: str, monitor: FeedMonitor) -> None:
    path = f"{closed}/api/feeds/hidden-name/actions"
    answer = httpx.post(path, json={"action": "stop"}, headers=bearer(VIEWER_TOKEN), trust_env=False)
    assert (answer.status_code, answer.json()["error"]) == (403, "a viewer may not do this")
    with browser(closed) as client:
        csrf = log_in(client, "vic")
        assert client.post("/api/feeds/hidden-name/actions", json={"action": "stop"}, headers=csrf).status_code == 403
    denied = [event for event in monitor.events.after() if "may not stop hidden-name" in event.message]
    assert [event.details["user"] for event in denied] == ["prometheus", "vic"]
    assert {event.details["address"] for event in denied} == {"127.0.0.1"}


def test_the_log_of_an_action_names_the_operator(closed: str, monitor: FeedMonitor) -> None:
    with browser(closed) as client:
        csrf = log_in(client)
        body = {"action": "pause", "reason": "<b>repair</b>"}
        answer = client.post("/api/feeds/hidden-name/actions", json=body, headers=csrf)
        assert (answer.status_code, answer.json()["event"]["kind"]) == (202, "action")
        assert "anna from 127.0.0.1 requests: pause" in answer.json()["event"]["message"]
        misfit = client.post("/api/feeds/hidden-name/actions", json={"action": "change"}, headers=csrf)
        assert (misfit.status_code, bool(misfit.json()["error"])) == (409, True)
        assert client.post("/api/feeds/hidden-name/actions", json={"action": "rm"}, headers=csrf).status_code == 400
        assert client.post("/api/feeds/other/actions", json={"action": "stop"}, headers=csrf).status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"X-CSRF-Token": ""},
        {"X-CSRF-Token": "wrong"},
        {"X-CSRF-Token": "ü"},
    ],
)
@pytest.mark.parametrize("has_login", [True, False])
def test_a_page_of_another_site_cannot_send_an_action(
    closed: str, opened: str, headers: dict[str, str], has_login: bool
) -> None:
    served = closed if has_login else opened
    with browser(served) as client:
        csrf = log_in(client) if has_login else {"X-CSRF-Token": client.get("/api/session").json()["csrf"]}
        sent = {key: value.encode() for key, value in {**csrf, **headers}.items()}
        answer = client.post("/api/feeds/hidden-name/actions", json={"action": "stop"}, headers=sent)
        assert answer.status_code == 403, answer.text


def test_a_request_without_an_origin_needs_a_token(closed: str) -> None:
    with httpx.Client(base_url=closed, trust_env=False) as client:
        assert client.post("/login", json={"user": "anna", "password": PASSWORD}).status_code == 403
        path = "/api/feeds/hidden-name/actions"
        answer = client.post(path, json={"action": "resume", "reason": ""}, headers=bearer(OPERATOR_TOKEN))
        assert answer.status_code in (202, 409)


def test_a_page_of_another_site_cannot_read_feeds(opened: str) -> None:
    with httpx.Client(base_url=opened, trust_env=False) as client:
        assert client.get("/api/feeds", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
        answer = client.get("/api/feeds", headers={"Origin": "https://evil.example"})
        assert not [name for name in answer.headers if name.startswith("access-control")]
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert client.get("/", headers=link).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "192.168.1.1",
        "[::2]",
        "127.0.0.1@evil.example",
        "127.0.0.1:80:80",
        "127.0.0.1, evil.example",
        "",
    ],
)
def test_a_foreign_host_header_is_refused(opened: str, closed: str, host: str) -> None:
    for served in (opened, closed):
        headers = {**bearer(OPERATOR_TOKEN), "Host": host}
        answer = httpx.get(f"{served}/api/feeds", headers=headers, trust_env=False)
        assert (answer.status_code, "hidden-name" in answer.text) == (421, False)


def test_the_host_header_may_name_loopback_or_an_allowed_host() -> None:
    hosts = ("localhost", "LOCALHOST:99", "127.0.0.1", "[::1]:8380", "localhost.", "feeds.test", "xfeeds.test")
    with dashboard(monitor_of(), without_login(allowed_hosts=["feeds.test"])) as served:
        answers = [httpx.get(f"{served}/api/feeds", headers={"Host": host}, trust_env=False) for host in hosts]
    assert [answer.status_code for answer in answers] == [200] * 6 + [421]


def test_on_loopback_only_the_user_of_the_process_needs_no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    with dashboard(monitor_of(), without_login()) as served:
        session = httpx.get(f"{served}/api/session", trust_env=False).json()
        assert (session["role"], session["login_required"]) == ("operator", False)
        monkeypatch.setattr(guard, "is_own_user", lambda client, server: False)
        answer = httpx.get(f"{served}/api/feeds", trust_env=False)
        assert (answer.status_code, "hidden-name" in answer.text) == (401, False)


def test_the_user_who_owns_a_clients_socket_is_read_from_the_kernel(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with socket.create_connection(server.getsockname()) as client:
            own, there = client.getsockname(), server.getsockname()
            if Path("/proc/net/tcp").exists():
                assert access.is_own_user(own, there)
                assert not access.is_own_user((own[0], own[1] - 1), there)
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = "   0: 0100007F:1F90 0100007F:0050 {} 00000000:00000000 00:00000000 00000000  4711        0 {} 1\n"
    for state, inode, uid in (("01", "77", 4711), ("01", "0", None), ("06", "77", None)):
        (tmp_path / "tcp").write_text(head + row.format(state, inode))
        assert access.uid_of(("127.0.0.1", 8080), ("127.0.0.1", 80), folder=tmp_path) == uid
    assert not access.is_own_user(("127.0.0.1", 8080), ("127.0.0.1", 80), folder=tmp_path / "none")


def test_tokens_are_compared_in_constant_time(closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    original = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return original(one, other)

    monkeypatch.setattr("lakefeed_dashboard.access.hmac.compare_digest", compare)
    httpx.get(f"{closed}/api/feeds", headers=bearer(VIEWER_TOKEN), trust_env=False)
    assert len(compared) == 2  # Although the first token matches, the second token is compared, too.
    assert all(len(digest) == 32 for digest in compared)


@pytest.mark.parametrize("path", ["/", "/login", "/api/feeds", "/static/login.css", "/none", "/metrics"])
def test_each_answer_has_the_security_headers(opened: str, path: str) -> None:
    headers = httpx.get(opened + path, trust_env=False).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cache-control"] == ("no-cache" if path.startswith("/static") else "no-store")
    assert "server" not in headers


@pytest.mark.parametrize("method", ["HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_methods_except_get_and_post_are_refused_with_json(opened: str, method: str) -> None:
    with socket.create_connection(address(opened), timeout=5) as connection:
        connection.sendall(f"{method} /api/feeds HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"application/json" in answer
    assert b"hidden-name" not in answer


@pytest.mark.parametrize(
    "path",
    [
        "/static/../api.py",
        "/static/%2e%2e/api.py",
        "/static/..%2fapi.py",
        "/static/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc/passwd",
        "/static//etc/passwd",
        "/static/..\\api.py",
        "/static/%00",
        "/static/",
        "/static/js",
    ],
)
def test_no_path_reads_a_file_outside_the_static_folder(opened: str, path: str) -> None:
    with socket.create_connection(address(opened), timeout=5) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 ")), answer[:200]
    assert b"import" not in answer
    assert b"root:" not in answer


@pytest.mark.parametrize("name", ["a/b", "ü ñ 日本", "progress", "<script>", "a?b#c", "%2F"])
def test_feeds_are_found_by_any_name(name: str) -> None:
    from urllib.parse import quote

    with dashboard(monitor_of(name), without_login()) as served:
        path = f"{served}/api/feeds/{quote(name, safe='')}"
        assert httpx.get(f"{path}/progress", trust_env=False).json()["feed"] == name
        assert httpx.get(f"{path}/events", trust_env=False).json()["events"][0]["kind"] == "started"


def test_a_request_body_must_be_a_small_json_object(opened: str) -> None:
    with browser(opened) as client:
        csrf = {"X-CSRF-Token": client.get("/api/session").json()["csrf"]}
        path = "/api/feeds/hidden-name/actions"

        def status(content: bytes, kind: str = "application/json") -> int:
            return client.post(path, content=content, headers={**csrf, "Content-Type": kind}).status_code

        assert status(b'{"action":"stop","reason":"' + b"x" * 70_000 + b'"}') == 413
        assert status(b'{"action":"stop"}', "text/plain") == 415
        assert [status(body) for body in (b"", b"[]", b"\xff", b"[" * 10_000, b"null")] == [400] * 5
        assert status(b'{"action":["stop"]}') == 400
        assert status(b'{"action":"pause","reason":["x"]}') == 409


def test_no_answer_contains_a_secret(closed: str, monitor: FeedMonitor) -> None:
    found = [str(monitor.events.after())]
    with httpx.Client(base_url=closed, headers=bearer(OPERATOR_TOKEN), trust_env=False) as client:
        for path in PATHS:
            if "stream" not in path:
                found.append(client.get(path).text)
    everything = "".join(found)
    assert not [secret for secret in (OPERATOR_TOKEN, VIEWER_TOKEN, PASSWORD, "argon2") if secret in everything]


def test_wrong_tokens_are_limited_while_a_correct_token_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = monitor_of()
    with dashboard(monitor, with_login()) as served, httpx.Client(base_url=served, trust_env=False) as client:
        statuses = [client.get("/api/feeds", headers=bearer(f"wrong{n}")).status_code for n in range(30)]
        assert (statuses[0], statuses[-1]) == (401, 429)
        assert client.get("/api/feeds", headers=bearer(VIEWER_TOKEN)).status_code == 200
    refused = [event for event in monitor.events.after() if event.details.get("outcome") == "refused"]
    assert 0 < len(refused) <= 30
    assert all("wrong" not in str(dict(event.details)) for event in refused)


def test_a_busy_server_answers_with_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefeed_dashboard.workers.MOST_WAITING", 0)
    with dashboard(monitor_of(), without_login()) as served:
        answer = httpx.get(f"{served}/api/feeds", trust_env=False)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json() == {"error": "too many requests wait", "hint": "try again in some seconds"}


def test_a_read_that_hangs_is_answered_with_503(monkeypatch: pytest.MonkeyPatch) -> None:
    from lakefeed_dashboard import workers

    monkeypatch.setattr(workers, "SLOW_SECONDS", 0.3)
    monkeypatch.setattr("lakefeed.operations.endpoint.OwnFeed.detail", lambda self, what: time.sleep(1.5))
    with dashboard(monitor_of(), without_login()) as served:
        began = time.monotonic()
        answer = httpx.get(f"{served}/api/feeds/hidden-name/panels", trust_env=False)
        assert (answer.status_code, time.monotonic() - began < 1.2) == (503, True)
        assert httpx.get(f"{served}/api/feeds", trust_env=False).elapsed.total_seconds() < 0.5
