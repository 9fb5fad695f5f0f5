"""Airflow 3 lands what is in the topic, every ten minutes: put this file into the folder of DAGs.

Airflow and lakefeed need not share an environment: LAKEFEED names lakefeed's program, PIPELINE the pipeline file. With
OPENLINEAGE_URL the feed reports its run with Airflow's task as its parent.
"""

import json
from datetime import UTC, datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import dag, task

# BashOperator takes the last line of the output as the result, so the JSON document becomes one line.
LAND = """
set -o pipefail
"${LAKEFEED:-lakefeed}" run "$PIPELINE" --once --output json \
  ${OPENLINEAGE_URL:+--set "lineage.url=$OPENLINEAGE_URL" --set "lineage.parent=$PARENT"} | tr -d '\\n'
"""


# A feed has one driver, so only one run of this DAG may be active.
@dag(schedule="*/10 * * * *", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1)
def purchases() -> None:
    """Land the topic, and then report how many rows have landed."""
    land = BashOperator(
        task_id="land",
        bash_command=LAND,
        env={"PARENT": "{{ macros.OpenLineageProviderPlugin.lineage_parent_id(task_instance) }}"},
        append_env=True,
        output_processor=json.loads,
    )

    @task
    def report(landed: dict) -> str:
        return f"{landed['rows']} rows and {landed['dead_letters']} dead letters of {landed['records']} records"

    report(land.output)


purchases()
