"""The settings of a cluster's master."""

from __future__ import annotations

import pytest

from lakefeed.clients.spark.cluster import require_secret, secured
from lakefeed.clients.spark.session import settings
from lakefeed.errors import ConfigError

STANDALONE = {"spark.master": "spark://host:7077"}


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host"])
def test_a_cluster_has_authentication_and_encryption(master: str) -> None:
    found = settings(master=master)
    assert (found["spark.authenticate"], found["spark.network.crypto.enabled"]) == ("true", "true")
    assert "spark.authenticate" not in settings(master="local[2]")


def test_a_standalone_cluster_without_a_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="without authentication and encryption") as refused:
        require_secret({**STANDALONE, **secured("spark://host:7077")})
    assert "spark.authenticate: false" in str(refused.value)


def test_yarn_makes_a_secret_of_its_own() -> None:
    given = {"spark.master": "yarn", **secured("yarn")}
    assert require_secret(given) == given


@pytest.mark.parametrize("no", ["false", "False"])
def test_a_user_can_do_without(no: str) -> None:
    given = {**STANDALONE, **secured("spark://host:7077"), "spark.authenticate": no}
    assert require_secret(given) == {**STANDALONE, "spark.authenticate": no}
