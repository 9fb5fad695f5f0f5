"""All ledgers have the methods of ``Ledger``; tests/spark compares their behaviour."""

import pytest

from lakefeed.ledger.continuity import NoLedger, RangesLedger
from lakefeed.ledger.entries import EntryLedger
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.protocol import Ledger
from tests.support.ledger_protocol import require_protocol

LEDGERS: tuple[type[Ledger], ...] = (IcebergLedger, EntryLedger, NoLedger, RangesLedger)


@pytest.mark.parametrize("ledger", LEDGERS)
def test_each_ledger_has_the_methods_of_the_protocol(ledger: type[Ledger]) -> None:
    require_protocol(ledger)
