from lakefeed_elasticsearch.ledger import ElasticsearchLedger
from tests.support.ledger_protocol import require_protocol


def test_the_ledger_can_be_called_as_its_protocol_says() -> None:
    require_protocol(ElasticsearchLedger)
