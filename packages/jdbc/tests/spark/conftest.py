"""Choose the tests of databases that ``make test-full`` runs."""

import pytest

# The tests that run on PostgreSQL, too. MariaDB has more traps, so it runs them all.
TELLING_OF_POSTGRESQL = {
    "test_each_batch_is_committed_once_with_its_ranges",
    "test_only_the_driver_that_took_the_fence_last_can_commit",
    "test_every_type_comes_back_as_it_was",
    "test_the_newest_change_of_each_key_wins_and_deletes_delete",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the other tests of PostgreSQL as slow: only ``make test-all`` runs them."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            into = item.callspec.params.get("shop", "mariadb")
            if into == "postgresql" and item.originalname not in TELLING_OF_POSTGRESQL:
                item.add_marker(pytest.mark.slow)
