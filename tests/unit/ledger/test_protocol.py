"""All ledgers have one protocol: mypy compares their signatures here; tests/spark compares their behaviour."""

import pytest

from lakefeed.ledger.entries import EntryLedger
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.partial import NoLedger, RangesLedger
from lakefeed.ledger.protocol import Ledger
from tests.support.ledger_protocol import require_protocol

LEDGERS: tuple[type[Ledger], ...] = (IcebergLedger, EntryLedger, NoLedger, RangesLedger)


@pytest.mark.parametrize("ledger", LEDGERS)
def test_a_ledger_can_be_called_as_its_protocol_says(ledger: type[Ledger]) -> None:
    require_protocol(ledger)
