"""A feed runs with servers that require client certificates; each server's error names a missing or wrong one."""

from collections.abc import Iterator

import pytest

from lakefeed.config import trust
from lakefeed_local.stack import Endpoints
from tests.support.secured import Secured, secured
from tests.support.secured_feed import EACH_SERVER, land, problems, with_certificate
from tests.support.servers.postgresql import PostgreSQL
from tests.support.servers.search import SearchServer

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _trust_of_one_test() -> Iterator[None]:
    yield
    trust.forget()


@pytest.fixture(scope="module")
def asking(
    stack: Endpoints, postgres: PostgreSQL, search: SearchServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("asking")
    with secured(folder, stack=stack, postgres=postgres, search=search, mutual=True) as running:
        yield running


def test_a_feed_runs_with_its_own_client_certificate(asking: Secured) -> None:
    own = asking.authority.sign("the-feed")
    files = {"LAKEFEED_CLIENT_CERTIFICATE": str(own.certificate), "LAKEFEED_CLIENT_KEY": str(own.key)}
    land(asking, with_certificate(own), environment=files)


def test_each_servers_error_names_a_missing_or_untrusted_client_certificate(asking: Secured) -> None:
    stranger = asking.stranger.sign("a-stranger")
    for change in (lambda pipeline: None, with_certificate(stranger)):
        found = problems(asking, change)
        assert found.keys() == EACH_SERVER
        for key, text in found.items():
            assert "requests a client certificate" in text, (key, text)
            assert "tls.certificate" in text, (key, text)
