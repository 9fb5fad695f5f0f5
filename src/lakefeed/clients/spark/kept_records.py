"""Limits how much finished work Spark's driver remembers for its UI and API; it does so even without the UI."""

from __future__ import annotations

RETAINED_TASKS = 10_000
SETTINGS = {
    # Spark's defaults are 1,000 jobs, stages and plans, and 100,000 tasks. A feed would fill them although no one looks
    # at them, and the plan of a single batch may have hundreds of columns.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": str(RETAINED_TASKS),
    "spark.sql.ui.retainedExecutions": "100",
}
