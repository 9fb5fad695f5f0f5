"""The object stores that are to fail, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.stores import STORES, Store, running_store


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Each store in turn."""
    with running_store(
        request.param, embedded=lambda: request.getfixturevalue("stack"), home=tmp_path_factory.mktemp(request.param)
    ) as running:
        yield running
