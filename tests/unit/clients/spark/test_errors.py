"""Errors of Spark that are known become lakefeed's, with what to do."""

from __future__ import annotations

import pytest

from lakefeed.clients.spark.errors import translate
from lakefeed.errors import CheckpointMismatch

STREAM_FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {} SQLSTATE: XXKST"


@pytest.mark.parametrize(
    ("spark", "what"),
    [
        ("batch 1 doesn't exist", "an entry of the checkpoint is gone: another driver works on the same checkpoint"),
        (
            "[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] The location s3a://lake/c should be empty on batch 0",
            "another driver works on the same checkpoint, or its folder has files of another query",
        ),
        (
            "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 3.",
            "another driver works on the same checkpoint",
        ),
    ],
)
def test_a_checkpoint_that_another_driver_changes(spark: str, what: str) -> None:
    found = translate(RuntimeError(STREAM_FAILED.format(spark)))
    assert type(found) is CheckpointMismatch
    assert found.what.startswith(what)
    assert "stop the other run of this pipeline" in (found.hint or "")
