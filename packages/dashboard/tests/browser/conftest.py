"""Start one browser for each test file, because other tests must not run in Playwright's event loop."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.browser import headless_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with headless_browser() as running:
        yield running
