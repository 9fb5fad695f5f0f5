"""Guards of a Delta sink, in the table's log."""

from __future__ import annotations

from tools.guards.guard import plugin

IN_A_DELTA_TABLE = (
    plugin(
        "delta",
        "delta: a log with a missing version is read as an older table",
        "log",
        "if not missing:",
        "if True:",
        "packages/delta/tests/unit/test_log.py::test_a_missing_or_torn_version_is_refused",
    ),
)
