"""Guards of the Kafka sink, and of the reader that recognizes the copies that the sink may send."""

from __future__ import annotations

from tools.guards.guard import java, plugin

COPIES = "tests/spark/test_copies.py::test_"

IN_A_TOPIC = (
    java(
        "copies: a late copy from an older batch counts as new",
        "copies/OnceOnly",
        "boolean copy = batch < before\n",
        "boolean copy = batch < 0\n",
        f"{COPIES}a_late_record_of_an_older_batch_counts_as_a_copy",
    ),
    java(
        "copies: a reader forgets what it has seen",
        "copies/RowsSeen",
        "if (seen.contains(offset)) {",
        "if (false) {",
        f"{COPIES}deduplication_yields_each_row_once_over_batches_and_restarts",
    ),
    plugin(
        "kafka",
        "copies: equal rows of a batch count as copies of one row",
        "sink",
        "sf.row_number().over(equal) - 1",
        "sf.lit(0)",
        f"{COPIES}equal_rows_of_a_batch_have_different_numbers_in_their_headers",
    ),
    plugin(
        "kafka",
        "copies: a copy goes to another partition than the first record",
        "sink",
        'sf.when(sf.col("key").isNull(), own)',
        'sf.lit(None).cast("int")',
        f"{COPIES}a_repeated_row_goes_to_the_same_partition",
    ),
)
