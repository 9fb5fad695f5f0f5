"""Different keys have different document ids, whatever characters the values of the keys contain."""

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakefeed_elasticsearch.layout import LONGEST_ID, id_of

# The texts consist of characters that the encoding uses, or of any characters.
TEXT = st.text(alphabet="\\/NE#a", max_size=4) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200
)
KEY = st.tuples(st.none() | TEXT, st.none() | TEXT, st.none() | st.integers(-(2**63), 2**63 - 1))
Key = tuple[str | None, str | None, int | None]


def read(part: str) -> str | None:
    """Return the value that a part of an id encodes."""
    if part in ("\\N", "\\E"):
        return None if part == "\\N" else ""
    text, at = "", 0
    while at < len(part):
        at += part[at] == "\\"
        text, at = text + part[at], at + 1
    return text


def parts(message: str) -> list[str]:
    """Split an id at the slashes that no backslash escapes."""
    found, at = [""], 0
    while at < len(message):
        step = 2 if message[at] == "\\" else 1
        if message[at] == "/":
            found.append("")
        else:
            found[-1] += message[at : at + step]
        at += step
    return found


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.lists(KEY, min_size=1, max_size=300, unique=True))
@example(
    keys=[("a/b", "c", 1), ("a", "b/c", 1), ("a\\", "/b", 1), ("a\\/", "b", 1), ("", None, None), (None, "", None)]
)
@example(keys=[("x" * 600, "", 1), ("x" * 600, "", 2), ("\\#", "", 1)])
def test_a_document_id_encodes_the_key(spark: SparkSession, keys: list[Key]) -> None:
    frame = spark.createDataFrame(keys, "a STRING, b STRING, c BIGINT")
    columns = [(frame[each.name], each.dataType) for each in frame.schema.fields]
    ids = [str(row[0]) for row in frame.select(id_of(columns)).collect()]
    assert len(set(ids)) == len(keys)
    for message, (a, b, c) in zip(ids, keys, strict=True):
        assert 0 < len(message.encode()) <= LONGEST_ID
        if not message.startswith("\\#"):
            assert list(map(read, parts(message))) == [a, b, None if c is None else str(c)]
