"""Provide the fixtures of the pytest plug-in and the fixture ``run`` to these tests."""

from lakefeed_testing.fixtures import lakefeed_registry as lakefeed_registry
from lakefeed_testing.fixtures import lakefeed_table as lakefeed_table
from lakefeed_testing.fixtures import lakefeed_topic as lakefeed_topic
from packages.testing.tests.cases import run as run
