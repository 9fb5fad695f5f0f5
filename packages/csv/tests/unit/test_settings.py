"""Settings of the block ``decode.csv``."""

from typing import Any

import pytest
from pydantic import ValidationError

from lakefeed.config.decoding import Decode
from lakefeed_csv.settings import CsvFormat


def test_the_block_csv_sets_the_options_of_the_decoder() -> None:
    given = {"csv": {"schema_ddl": "a INT", "delimiter": "\t", "null_value": "NULL"}}
    found = Decode.model_validate(given).installed
    assert isinstance(found, CsvFormat)
    assert found.decoder().options == {"delimiter": "\t", "quote": '"', "escape": '"', "null-value": "NULL"}


@pytest.mark.parametrize(
    ("block", "what"),
    [
        ({}, "either schema_ddl or schema_file"),
        ({"schema_ddl": "a INT", "delimiter": ";;"}, "one ASCII character"),
        ({"schema_ddl": "a INT", "quote": ","}, "the same character"),
    ],
)
def test_mistakes_in_the_block_csv_are_refused(block: dict[str, Any], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        Decode.model_validate({"csv": block})
