"""Guards of operators' requests to a running feed: a pause writes, loses and repeats no record."""

from __future__ import annotations

from tools.guards.guard import python

WATCH = "tests/unit/feed/test_run.py::test_"
STEERING = "tests/unit/feed/test_steering.py::test_"
RESUME = "tests/unit/feed/test_streaming.py::test_"
PAUSES = "packages/repair/tests/unit/test_control.py::test_"

IN_A_PAUSE = (
    python(
        "pause: a batch begins after the query was asked to end",
        "feed/run",
        "if self.end:\n                    raise StopRequested",
        "if False:\n                    raise StopRequested",
        f"{WATCH}a_batch_counts_as_written_when_its_batch_function_has_ended",
        f"{WATCH}no_batch_begins_while_a_request_of_an_operator_waits",
    ),
    python(
        "pause: the query ends before Spark has logged a landed batch",
        "feed/run",
        "is_logged = not batches.landed or batches.landed[-1].batch_id <= newest",
        "is_logged = True",
        f"{WATCH}a_query_is_stopped_only_after_spark_has_logged_its_last_batch",
    ),
    python(
        "pause: a failure during the pause is lost",
        "feed/run",
        "if batches.failure is not None:\n                    # The query",
        "if False:\n                    # The query",
        f"{WATCH}a_failure_during_a_stop_is_raised",
    ),
    python(
        "pause: a resume skips the checks of a start",
        "feed/streaming",
        "if decide_again is not None:",
        "if False:",
        f"{RESUME}a_resume_is_refused_if_a_start_would_be_refused",
    ),
    python(
        "pause: a replaced driver changes the checkpoint",
        "feed/streaming",
        "self._reached is not None and ends(position) != self._reached",
        "False",
        f"{RESUME}a_driver_that_was_replaced_during_its_pause_does_not_touch_the_checkpoint",
    ),
    python(
        "pause: the next start does not know the pause",
        "feed/steering",
        "self._store.write(request.pause)",
        "pass",
        f"{STEERING}a_stop_ends_a_paused_run_immediately_and_the_pause_stays_stored",
    ),
    python(
        "pause: an unreadable pause does not count",
        "ledger/pauses",
        'return Pause(reason=UNREADABLE, by="unknown", at=0.0)',
        'raise ValueError("unreadable")',
        f"{PAUSES}an_unreadable_pause_file_counts_as_a_pause",
    ),
)
