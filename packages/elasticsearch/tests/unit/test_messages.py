"""An error text omits values of records, which messages of search servers may quote."""

from lakefeed_elasticsearch.server import Answer, refusal

CANARY = 'J. Doe\'s "card"\n4111'


def test_a_refusal_contains_no_value_of_a_record() -> None:
    reason = f"failed to parse field [n] of type [long] in document with id '7'. Preview of field's value: '{CANARY}'"
    answer = Answer(400, {"error": {"type": "mapper_parsing_exception", "reason": reason}})
    message = str(refusal(answer, where="index trips"))
    assert "failed to parse field [n] of type [long]" in message
    assert "Doe" not in message
