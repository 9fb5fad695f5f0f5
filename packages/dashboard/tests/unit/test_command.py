"""``lakefeed dashboard`` as a process, and its subcommand that hashes a password."""

import os
import re
import signal
import time
from pathlib import Path

import httpx
import pytest
from argon2 import PasswordHasher
from click.testing import CliRunner

from lakefeed.cli.main import root
from lakefeed.errors import ConfigError
from tests.support.cli import Running


def test_the_command_serves_a_dashboard_until_sigterm(tmp_path: Path) -> None:
    running = Running(["dashboard", "--port", "0"], {"LAKEFEED_HOME": str(tmp_path)}, tmp_path / "log")
    try:
        running.wait_until_it_says("the dashboard is at ")
        url = re.findall(r"the dashboard is at (\S+)", running.said())[0]
        assert httpx.get(f"{url}/api/feeds", trust_env=False).json() == {"feeds": []}
        began = time.monotonic()
        os.kill(running.process.pid, signal.SIGTERM)
        assert running.process.wait(10) == 0
        assert time.monotonic() - began < 4
    finally:
        if running.process.poll() is None:
            running.kill()


def test_hash_password_prints_a_hash_and_refuses_a_short_password() -> None:
    done = CliRunner().invoke(root, ["dashboard", "hash-password"], input="correct horse\n")
    assert (done.exit_code, "correct horse" in done.output) == (0, False)
    assert PasswordHasher().verify(done.output.strip(), "correct horse")
    short = CliRunner().invoke(root, ["dashboard", "hash-password"], input="short\n")
    assert isinstance(short.exception, ConfigError)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
def test_an_address_other_than_loopback_requires_a_login(host: str) -> None:
    done = CliRunner().invoke(root, ["dashboard", "--host", host])
    assert isinstance(done.exception, ConfigError)
    assert "requires a login" in str(done.exception)
