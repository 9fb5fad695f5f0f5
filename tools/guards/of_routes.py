"""Guards of a feed that has a table for each value of a field."""

from __future__ import annotations

from tools.guards.guard import plugin

ROUTES = "packages/routes/tests/integration/test_routes.py::test_"

ON_ROUTES = (
    plugin(
        "routes",
        "routes: a table gets rows of an interrupted batch again",
        "sink",
        "if ahead := self._ahead(name, commit.ranges):",
        "if ahead := {}:",
        f"{ROUTES}a_driver_that_dies_between_the_commits_of_two_tables_loses_and_doubles_nothing",
    ),
    plugin(
        "routes",
        "routes: an interrupted batch is completed by other rules",
        "sink",
        "if again == had and",
        "if True or again == had and",
        f"{ROUTES}a_driver_that_dies_between_the_commits_of_two_tables_loses_and_doubles_nothing",
    ),
)
