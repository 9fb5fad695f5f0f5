"""Guards of a JDBC sink, within the transaction of a batch."""

from __future__ import annotations

from tools.guards.guard import plugin, python

JDBC = "packages/jdbc/tests/spark/test_jdbc.py::test_"
CONTINUITY = "tests/unit/ledger/test_continuity.py::test_"
FAULTS = "packages/jdbc/tests/faults/test_jdbc.py::test_"

IN_A_DATABASE = (
    python(
        "jdbc: a replaced driver commits past the fence",
        "ledger/continuity",
        "if fence != commit.fence:",
        "if False:",
        f"{JDBC}only_the_driver_that_took_the_fence_last_can_commit",
    ),
    python(
        "jdbc: a batch that does not continue the last batch commits",
        "ledger/continuity",
        "elif faults := violations(last.commit.ranges, commit):",
        "elif faults := []:",
        f"{JDBC}a_batch_that_does_not_begin_at_the_ledgers_end_is_refused",
    ),
    python(
        "jdbc: a batch begins after the end of the last batch",
        "ledger/continuity",
        "elif moves is None and ended is not None and span.start != ended:",
        "elif False:",
        f"{CONTINUITY}a_commit_that_does_not_continue_the_last_commit_has_violations",
    ),
    python(
        "jdbc: a recreated topic continues the old topic of the same name",
        "ledger/continuity",
        ") != topic_id and left.get(topic) != before",
        ") != topic_id and False",
        f"{CONTINUITY}a_commit_that_does_not_continue_the_last_commit_has_violations",
    ),
    python(
        "jdbc: a commit whose answer was lost lands again",
        "ledger/continuity",
        "if last is not None and last.commit_id == commit_id and last.commit.ranges == commit.ranges:",
        "if False:",
        f"{JDBC}a_repeated_commit_lands_once",
    ),
    plugin(
        "jdbc",
        "jdbc: staged rows that a killed server has lost are missing",
        "table",
        "if expected and merge.staged() != expected:",
        "if False:",
        f"{JDBC}rows_are_staged_again_if_the_database_has_lost_them",
    ),
    plugin(
        "jdbc",
        "jdbc: staged rows of failed tasks land",
        "table",
        'f"s._lakefeed_task IN (',
        'f"0 NOT IN (',
        f"{JDBC}staged_rows_of_failed_attempts_do_not_land",
    ),
)
