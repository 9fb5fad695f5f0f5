"""An asset of Dagster that lands what is in the topic: dagster dev -f examples/orchestrators/dagster_asset.py

Dagster and lakefeed need not share an environment: LAKEFEED names lakefeed's program, PIPELINE the pipeline file. With
OPENLINEAGE_URL the feed reports its run with Dagster's run as its parent.
"""

import json
import os
import subprocess

import dagster as dg


# A feed has one driver, so a pool with the limit 1 keeps a second run waiting.
@dg.asset(kinds={"kafka", "iceberg"}, pool="purchases")
def purchases(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """Purchases of the topic, in the table lake.shop.purchases."""
    command = [os.environ.get("LAKEFEED", "lakefeed"), "run", os.environ["PIPELINE"], "--once", "--output", "json"]
    if url := os.environ.get("OPENLINEAGE_URL"):
        parent = f"dagster/{context.job_name}/{context.run_id}"
        command += ["--set", f"lineage.url={url}", "--set", f"lineage.parent={parent}"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode != 0:
        raise dg.Failure(f"the run ended with status {ran.returncode}", metadata={"error": ran.stdout})
    landed = json.loads(ran.stdout)
    return dg.MaterializeResult(
        metadata={name: landed[name] for name in ("records", "rows", "dead_letters", "batches")}
    )


defs = dg.Definitions(assets=[purchases])
