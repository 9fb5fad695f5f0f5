"""What all tests share: the embedded stack, started for the first test that wants it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakefeed.local import Endpoints, Stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """A stack for the whole session. Tests share it: each takes topic, subject and table names of its own."""
    embedded = Stack(tmp_path_factory.mktemp("stack"))
    try:
        yield embedded.up()
    finally:
        embedded.down(erase=True)
