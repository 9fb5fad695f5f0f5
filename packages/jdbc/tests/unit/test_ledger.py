from lakefeed_jdbc.ledger import JdbcLedger
from tests.support.ledger_protocol import require_protocol


def test_the_ledger_has_the_methods_of_the_protocol() -> None:
    require_protocol(JdbcLedger)
