"""The login has sessions, cookies and limits on guesses, and its answers reveal nothing to an attacker."""

import threading
import time

import httpx
import pytest

from lakefeed.config.base import validated
from lakefeed_dashboard import credentials, stream
from lakefeed_dashboard.access import Attempts, Audit, dashboard_access, network_of
from lakefeed_dashboard.credentials import MOST_OF_A_USER, Passwords, Sessions, hash_password
from lakefeed_dashboard.settings import Dashboard
from packages.dashboard.tests.dashboards import (
    OPERATOR_TOKEN,
    PASSWORD,
    browser,
    dashboard,
    log_in,
    monitor_of,
    password_hash,
    with_login,
)
from tests.support.clock import Clock


def guess(client: httpx.Client, user: str, password: str = "wrong") -> int:
    return client.post("/login", json={"user": user, "password": password}).status_code


def test_a_session_begins_at_the_login_and_ends_at_the_logout() -> None:
    monitor = monitor_of()
    with dashboard(monitor, with_login()) as served, browser(served) as client:
        assert client.get("/api/feeds").status_code == 401
        csrf = log_in(client)
        assert client.get("/api/feeds").json()["feeds"][0]["feed"] == "hidden-name"
        cookies = dict(client.cookies)
        assert client.post("/logout").status_code == 403  # A page of another site cannot send the CSRF header.
        assert client.post("/logout", headers=csrf).status_code == 200
        assert client.get("/api/feeds").status_code == 401
        client.cookies.update(cookies)
        assert client.get("/api/feeds").status_code == 401  # A copy of the cookie is invalid after the logout.
    messages = [event.message for event in monitor.events.after() if event.kind == "action"]
    assert messages == ["anna has logged in from 127.0.0.1", "anna has logged out from 127.0.0.1"]


def test_the_cookies_are_restricted_to_this_server() -> None:
    with dashboard(monitor_of(), with_login()) as served, browser(served) as client:
        answer = client.post("/login", json={"user": "anna", "password": PASSWORD})
        cookies = answer.headers.get_list("set-cookie")
        port = served.rsplit(":", 1)[1]
        assert [cookie.split("=")[0] for cookie in cookies] == [f"lakefeed-{port}", f"lakefeed-{port}-device"]
        for cookie in cookies:
            assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
            assert "Domain" not in cookie
    secure = validated(Dashboard, "test", **with_login().model_dump() | {"tls": {"certificate": "x", "key": "y"}})
    access = dashboard_access(secure, port=443)
    assert (access.cookie, access.is_tls) == ("__Host-lakefeed-443", True)


@pytest.mark.parametrize("form", [{"user": "anna", "password": PASSWORD}, {"token": OPERATOR_TOKEN}])
def test_the_login_form_works_without_javascript(form: dict[str, str]) -> None:
    with dashboard(monitor_of(), with_login()) as served, browser(served) as client:
        page = client.post("/login", data={**form, "password": "<script>", "token": "<script>"})
        assert (page.status_code, "<script" in page.text) == (401, False)
        answer = client.post("/login", data=form)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert client.get("/api/session").json()["role"] == "operator"
        assert client.get("/").status_code == 200


def test_a_login_ends_the_previous_session() -> None:
    with dashboard(monitor_of(), with_login()) as served, browser(served) as client:
        log_in(client)
        [name] = [name for name in client.cookies if "device" not in name]
        before = client.cookies[name]
        log_in(client, "vic")
        assert client.cookies[name] != before
        client.cookies.set(name, before, domain="127.0.0.1")
        client.cookies.delete(name, domain="127.0.0.1")
        assert client.get("/api/session", headers={"Cookie": f"{name}={before}"}).status_code == 401


def test_an_unknown_user_and_a_wrong_password_get_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = monitor_of()
    with dashboard(monitor, with_login()) as served, browser(served) as client:
        answers = [
            client.post("/login", json={"user": user, "password": "wrong"}) for user in ("anna", "no-user-of-this-name")
        ]
        assert answers[0].text == answers[1].text
        assert [answer.status_code for answer in answers] == [401, 401]
        odd = [{"user": "anna"}, {}, {"user": "", "password": ""}, {"user": ["anna"], "password": {"x": 1}}]
        assert {client.post("/login", json=body).status_code for body in odd} == {401}
    messages = "".join(event.message for event in monitor.events.after())
    assert "refused a login for anna from 127.0.0.1" in messages
    assert "no-user-of-this-name" not in messages  # A user may have typed the password into the field of the name.


def test_a_password_check_takes_equally_long_for_known_and_unknown_users() -> None:
    passwords = Passwords({"anna": password_hash(), "vic": password_hash()})

    def seconds(user: str) -> float:
        began = time.thread_time()  # Measure CPU time, which does not include other work on the machine.
        assert not passwords._verify(user, "wrong")
        return time.thread_time() - began

    # Checks of both users alternate, and only the fastest check of each user counts, because other work slows the
    # caches.
    pairs = [(seconds("anna"), seconds("eve")) for _ in range(15)]
    known, unknown = (min(times) for times in zip(*pairs, strict=True))
    assert 0.4 < known / unknown < 2.5
    passwords.close()


def test_guesses_are_limited_but_the_user_can_still_log_in_from_a_known_browser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An attacker with many addresses has used all attempts of the user."""
    monkeypatch.setattr("lakefeed_dashboard.access.Access.address_of", lambda self, request: request.headers["x-from"])
    with dashboard(monitor_of(), with_login()) as served, browser(served) as own, browser(served) as attacker:
        own.headers["x-from"] = "192.0.2.1"
        log_in(own)
        attacker.headers["x-from"] = "198.51.100.1"
        statuses = [guess(attacker, "anna") for _ in range(12)]
        assert (statuses[:10], statuses[10:]) == ([401] * 10, [429] * 2)
        for number in range(2, 6):
            attacker.headers["x-from"] = f"198.51.100.{number}"
            statuses += [guess(attacker, "anna") for _ in range(5)]
        assert statuses[-1] == 429
        assert guess(attacker, "anna", PASSWORD) == 429
        log_in(own)
        assert guess(attacker, "vic") == 401
        retry = attacker.post("/login", json={"user": "anna", "password": "wrong"}).headers["retry-after"]
        assert 1 <= int(retry) <= 16


def test_attempts_are_allowed_again_after_a_time() -> None:
    clock = Clock()
    attempts = Attempts(burst=2, every=10.0, most=3, clock=clock)
    assert [attempts.take("a") for _ in range(3)] == [0.0, 0.0, 10.0]
    clock.now += 10
    assert [attempts.take("a"), attempts.take("a")] == [0.0, 10.0]
    clock.now += 5
    assert attempts.wait("a") == pytest.approx(5.0)
    attempts.give_back("a")
    assert attempts.wait("a") == 0.0
    for key in "bcd":
        attempts.take(key)
    assert len(attempts._used) == 3


def test_ipv6_addresses_of_one_network_count_as_one_client() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1")


def test_sessions_expire_and_their_number_is_limited() -> None:
    clock = Clock()
    found = Sessions(hours=1, clock=clock)
    first = found.open("anna", "operator")
    assert found.find(first) is not None
    assert found.find(first + "x") is None
    others = [found.open("anna", "operator") for _ in range(MOST_OF_A_USER)]
    assert (found.find(first), found.find(others[0]) is not None) == (None, True)
    clock.now += 3600
    assert found.find(others[-1]) is None
    assert first not in repr(found.__dict__)
    for _ in range(credentials.MOST_DEVICES + 5):
        found.new_device("anna")
    assert len(found._devices) == credentials.MOST_DEVICES


@pytest.mark.waits
def test_an_expired_session_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with dashboard(monitor_of(), with_login(session_hours=0.0002)) as served, browser(served) as client:
        answer = client.post("/login", json={"user": "anna", "password": PASSWORD})
        cookie = answer.headers["set-cookie"].split(";")[0]
        time.sleep(1)
        assert client.get("/api/session", headers={"Cookie": cookie}).status_code == 401


def test_an_open_stream_ends_at_the_logout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.05)
    with dashboard(monitor_of(), with_login()) as served, browser(served) as client:
        csrf = log_in(client)
        with client.stream("GET", "/api/stream", timeout=10) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "event: feeds"
            assert client.post("/logout", headers=csrf).status_code == 200
            end = time.monotonic() + 30
            assert all(time.monotonic() < end for _ in lines)


def test_the_audit_log_sums_up_a_flood_of_refusals() -> None:
    clock, lines = Clock(), list[str]()
    audit = Audit(lambda message, **details: lines.append(message), clock=clock)
    for _ in range(1000):
        audit.refused("a login", address="192.0.2.1")
    clock.now += 60
    audit.refused("a login", address="192.0.2.1")
    assert len(lines) == 31
    assert lines[-1] == "refused a login from 192.0.2.1, after 970 more"


@pytest.mark.waits
def test_the_server_answers_while_it_checks_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(self: Passwords, user: str, password: str) -> bool:
        time.sleep(0.5)
        return False

    monkeypatch.setattr(Passwords, "_verify", verify)
    with dashboard(monitor_of(), with_login()) as served, browser(served) as client:

        def attempt() -> None:
            with browser(served) as other:
                guess(other, "anna")

        guesses = [threading.Thread(target=attempt) for _ in range(4)]
        for thread in guesses:
            thread.start()
        time.sleep(0.1)
        began = time.monotonic()
        assert client.get("/login").status_code == 200
        assert time.monotonic() - began < 0.4
        for thread in guesses:
            thread.join()


def test_hash_password_returns_an_argon2id_hash() -> None:
    hashed = hash_password(PASSWORD)
    assert hashed.startswith("$argon2id$v=19$m=65536,")
    validated(Dashboard, "test", users=[{"name": "anna", "password_hash": hashed}])


def test_half_a_surrogate_pair_is_a_wrong_password() -> None:
    with dashboard(monitor_of(), with_login()) as served, browser(served) as client:
        for body in (rb'{"user":"anna","password":"\ud800"}', rb'{"user":"\ud800","password":"x"}'):
            answer = client.post("/login", content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code == 401, answer.text
