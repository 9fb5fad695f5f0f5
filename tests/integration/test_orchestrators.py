"""``examples/orchestrators``: real Airflow, Dagster and dbt land a topic, report the run and read the table."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.feed import Feed
from tests.support.openlineage import problems, server
from tools.environments import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "orchestrators"
AIRFLOW = ("apache-airflow==3.3.2", "apache-airflow-providers-standard", "apache-airflow-providers-openlineage")
DAGSTER = ("dagster==1.13.28",)
CONTRACTS = ("datacontract-cli==1.2.8",)
DBT = ("dbt-core==1.11.16", "dbt-duckdb==1.11.1", "pyiceberg[pyarrow,sql-sqlite]==0.12.0")
COUNTS = {"records": 6, "rows": 3, "dead_letters": 3}


@pytest.fixture
def pipeline(feed: Feed) -> Path:
    """Send the example's records to a topic of this test; return the example's file with the names of this test."""
    feed.create_topic()
    feed.send((ROOT / "examples" / "data" / "purchases.jsonl").read_bytes().splitlines())
    text = (EXAMPLE / "pipeline.yaml").read_text("utf-8")
    for old, new in (
        ("name: purchases", f"name: {feed.name}"),
        ("topics: [purchases]", f"topics: [{feed.topic}]"),
        ("lake.shop.purchases", f"lake.{feed.name}.purchases"),
        ("checkpoints/purchases", f"checkpoints/{feed.name}"),
    ):
        assert old in text
        text = text.replace(old, new)
    file = feed.folder / "pipeline.yaml"
    file.write_text(text, "utf-8")
    return file


def ran(command: Sequence[str | Path], variables: dict[str, str], *, status: int = 0) -> str:
    """Run a program of another environment, and check its exit status; return what it has printed."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        command,
        env={**known, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == status, done.stdout[-6000:]
    return done.stdout


def variables(feed: Feed, pipeline: Path, lineage: str) -> dict[str, str]:
    own = {"LAKEFEED": str(Path(sys.executable).with_name("lakefeed")), "PIPELINE": str(pipeline)}
    return {**feed.environment, **own, "OPENLINEAGE_URL": lineage}


def parents(events: list[dict[str, Any]], feed: Feed) -> set[tuple[str, str, str]]:
    """Return the parents that the feed's events name: namespace, job and run."""
    own = [event for event in events if event["job"]["name"] == feed.name]
    assert [problems(event) for event in own] == [[]] * len(own)
    assert {"START", "COMPLETE"} <= {event["eventType"] for event in own}
    found = [event["run"]["facets"]["parent"] for event in own]
    return {(each["job"]["namespace"], each["job"]["name"], each["run"]["runId"]) for each in found}


def test_airflow_lands_the_topic_and_is_the_parent_of_the_run(feed: Feed, pipeline: Path, tmp_path: Path) -> None:
    program = environment("airflow", *AIRFLOW).with_name("airflow")
    with server() as (url, events, _):
        given = variables(feed, pipeline, url) | {
            "AIRFLOW_HOME": str(tmp_path),
            "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLE),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "http", "url": url}),
        }
        ran([program, "db", "migrate"], given)
        printed = ran([program, "dags", "test", "purchases", "2026-01-01"], given)
    assert "3 rows and 3 dead letters of 6 records" in printed
    [(namespace, job, run)] = parents(events, feed)
    assert (namespace, job) == ("default", "purchases.land")
    # Airflow reports the task itself, too.
    assert run in {event["run"]["runId"] for event in events if event["job"]["name"] == job}


def test_dagster_lands_the_topic_with_its_counts_and_is_the_parent_of_the_run(
    feed: Feed, pipeline: Path, tmp_path: Path
) -> None:
    python = environment("dagster", *DAGSTER)
    materialize: list[str | Path] = [python.with_name("dagster"), "asset", "materialize", "--select", "purchases"]
    command: list[str | Path] = [*materialize, "-f", str(EXAMPLE / "dagster_asset.py")]
    shown = (
        "import dagster, json\n"
        "with dagster.DagsterInstance.get() as instance:\n"
        "    [event] = instance.fetch_materializations(dagster.AssetKey('purchases'), limit=9).records\n"
        "    print(json.dumps([event.run_id, {name: value.value for name, value in"
        " event.asset_materialization.metadata.items()}]))\n"
    )
    with server() as (url, events, _):
        given = {**variables(feed, pipeline, url), "DAGSTER_HOME": str(tmp_path), "DAGSTER_DISABLE_TELEMETRY": "yes"}
        ran(command, given)
        run, counts = json.loads(ran([python, "-W", "ignore", "-c", shown], given).splitlines()[-1])
        assert {name: counts[name] for name in COUNTS} == COUNTS
        assert parents(events, feed) == {("dagster", "__ASSET_JOB", run)}
        failed = ran(command, {**given, "PIPELINE": str(tmp_path / "missing.yaml")}, status=1)
    assert "the run ended with status" in failed


def test_dbt_builds_and_tests_a_model_over_the_landed_table(feed: Feed, pipeline: Path, tmp_path: Path) -> None:
    python = environment("dbt", *DBT)
    lakefeed = str(Path(sys.executable).with_name("lakefeed"))
    ran([lakefeed, "run", pipeline, "--once"], feed.environment)
    project = tmp_path / "dbt"
    for path in (EXAMPLE / "dbt").rglob("*.*"):
        text = path.read_text("utf-8").replace("iceberg_table: shop.", f"iceberg_table: {feed.name}.")
        (project / path.relative_to(EXAMPLE / "dbt")).parent.mkdir(parents=True, exist_ok=True)
        (project / path.relative_to(EXAMPLE / "dbt")).write_text(text, "utf-8")
    known = feed.environment
    catalog = {
        "TYPE": "sql",
        "URI": known["LAKEFEED_CATALOG_URI"].replace("jdbc:sqlite:", "sqlite:///"),
        "WAREHOUSE": known["LAKEFEED_WAREHOUSE"],
        "S3__ENDPOINT": known["AWS_ENDPOINT_URL_S3"],
        "S3__ACCESS_KEY_ID": known["AWS_ACCESS_KEY_ID"],
        "S3__SECRET_ACCESS_KEY": known["AWS_SECRET_ACCESS_KEY"],
        "S3__REGION": known["AWS_REGION"],
    }
    given = {f"PYICEBERG_CATALOG__LAKE__{name}": value for name, value in catalog.items()}
    given |= {"SHOP_DUCKDB": str(tmp_path / "shop.duckdb"), "DBT_SEND_ANONYMOUS_USAGE_STATS": "False"}
    printed = ran([python.with_name("dbt"), "build", "--project-dir", project, "--profiles-dir", project], given)
    assert "ERROR=0" in printed
    shown = (
        "import duckdb, json, os\n"
        "rows = duckdb.connect(os.environ['SHOP_DUCKDB'], read_only=True)"
        ".execute('select * from revenue order by customer').fetchall()\n"
        "print(json.dumps(rows))\n"
    )
    assert json.loads(ran([python, "-c", shown], given)) == [["ann", 2, 15.0], ["ben", 1, 7.0]]


def test_the_contract_is_valid_by_the_schema_of_its_standard() -> None:
    program = environment("contracts", *CONTRACTS).with_name("datacontract")
    printed = ran([program, "lint", EXAMPLE / "purchases.odcs.yml"], {"COLUMNS": "200"})
    assert "Data contract is valid against ODCS v3.1.0" in printed
