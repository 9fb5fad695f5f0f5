"""A browser for each file of tests: Playwright's event loop is not shared with other tests of the process."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.browser import headless_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run a real headless browser."""
    with headless_browser() as running:
        yield running
