"""All ledgers have one protocol: mypy compares their signatures here, the tests of tests/spark what they do."""

from __future__ import annotations

import inspect

import pytest

from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.protocol import Ledger
from lakefeed.sinks.elasticsearch.ledger import ElasticsearchLedger
from lakefeed.sinks.jdbc.ledger import JdbcLedger
from tests.support.user_sinks import PythonSinkLedger

LEDGERS: tuple[type[Ledger], ...] = (IcebergLedger, JdbcLedger, ElasticsearchLedger, PythonSinkLedger)


@pytest.mark.parametrize("ledger", LEDGERS)
@pytest.mark.parametrize("method", ["position", "commits", "take_fence", "fence_taken", "check", "record_move"])
def test_a_ledger_can_be_called_as_its_protocol_says(ledger: type[Ledger], method: str) -> None:
    declared, found = (inspect.signature(getattr(each, method)) for each in (Ledger, ledger))
    names = list(declared.parameters)
    assert list(found.parameters)[: len(names)] == names
    # More parameters are optional.
    assert all(
        found.parameters[each].default is not inspect.Parameter.empty for each in list(found.parameters)[len(names) :]
    )
