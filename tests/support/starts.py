"""Run a pipeline; its start must be the one that ``offsets show`` and ``plan`` announced just before."""

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import LakefeedError
from lakefeed.pipeline import Pipeline, RunSummary


def run_as_planned(
    pipeline: Pipeline,
    lake: SparkSession,
    notes: list[str],
    *,
    accept_loss: bool = False,
    plans: bool = True,
    counts: bool = False,
) -> RunSummary:
    """Run a pipeline once, and raise the error of the run, if any.

    Args:
        pipeline: the pipeline.
        lake: the session.
        notes: a list that the notes of the run are appended to.
        accept_loss: the run's option; if True, the run does what ``offsets show`` and ``plan`` refuse.
        plans: whether to compare the plan too, which takes longer; it is always compared after a message or refusal.
        counts: whether a record exists at all planned offsets, so that the run must read as many records.
    """
    survey = pipeline.status(spark=lake)
    text = survey.decided.message if survey.decided is not None else None
    refusal = survey.refusal
    planned: int | None = None
    if plans or text or refusal:
        [plan] = pipeline.plan(spark=lake).tables
        assert (str(plan.refusal), plan.kind == "refused") == (str(refusal), refusal is not None)
        assert refusal is not None or plan.start == survey.start
        planned = sum(each.end - each.start for each in plan.partitions)
    if refusal is None or accept_loss:
        summary = pipeline.run(spark=lake, once=True, accept_loss=accept_loss, on_note=notes.append)
        assert refusal is not None or [each for each in notes if each == text] == ([text] if text else [])
        assert text or not [each for each in notes if "resumes where" in each]
        assert not counts or refusal is not None or summary.records == planned
        return summary
    assert survey.start == "refused"
    with pytest.raises(LakefeedError) as refused:
        pipeline.run(spark=lake, once=True, on_note=notes.append)
    assert (str(refused.value), type(refused.value)) == (str(refusal), type(refusal))
    raise refused.value
