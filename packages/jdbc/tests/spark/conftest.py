"""Choose the database tests that ``make test-full`` runs."""

import pytest

# `make test-full` runs only these tests on PostgreSQL, and all tests on MariaDB, where more can go wrong.
ON_POSTGRESQL = {
    "test_each_batch_is_committed_once_with_its_ranges",
    "test_only_the_driver_that_took_the_fence_last_can_commit",
    "test_values_of_every_type_are_stored_exactly",
    "test_the_newest_change_of_each_key_lands",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests on PostgreSQL as slow, but for ``ON_POSTGRESQL``, so that only ``make test-all`` runs them."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            into = item.callspec.params.get("shop", "mariadb")
            if into == "postgresql" and item.originalname not in ON_POSTGRESQL:
                item.add_marker(pytest.mark.slow)
