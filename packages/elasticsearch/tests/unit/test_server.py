import time

import pytest

from lakefeed.errors import Unreachable
from lakefeed_elasticsearch import server
from lakefeed_elasticsearch.settings import ElasticsearchSinkConfig
from tests.support.misbehaving import Manner, misbehaving


@pytest.mark.parametrize("manner", ["silent", "drip", "huge"])
def test_a_request_ends_in_time_whatever_the_server_does(manner: Manner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TIMEOUT_SECONDS", 0.4)
    began = time.monotonic()
    with misbehaving(manner) as address, pytest.raises(Unreachable):
        server.Server(ElasticsearchSinkConfig(url=f"http://{address}", index="i")).ask("GET", "/")
    assert time.monotonic() - began < 10
