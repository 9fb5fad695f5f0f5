"""How much of finished work Spark's driver remembers, for its UI and its API: with the UI or without."""

from __future__ import annotations

RETAINED_TASKS = 10_000
SETTINGS = {
    # Spark's defaults are 1,000 jobs, stages and plans, and 100,000 tasks: a feed fills them with what no one looks at,
    # and the plan of a batch alone may have hundreds of columns.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": str(RETAINED_TASKS),
    "spark.sql.ui.retainedExecutions": "100",
}
