"""Commits to REST catalogs, whose answer may not show whether a commit landed, and which do not check properties."""

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from lakefeed.clients.spark.errors import translate
from lakefeed.errors import AccessDenied, JobFailed, LakefeedError, Unreachable
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.sinks.definition import TableChange
from lakefeed.sinks.iceberg.layout import carry_out, creation
from lakefeed_upkeep.maintain import Lease
from tests.support.catalogs import RestCase
from tests.support.feed import until
from tests.support.feed_table import FEED, Table, refused
from tests.support.servers import deviations
from tests.support.servers.rest_catalog import Fault

rest_only = pytest.mark.parametrize("catalog", ["rest"], indirect=True)

# The error after each answer to a commit that the catalog did not apply, or None if the commit is sent again. A running
# feed waits for the server after Unreachable and AccessDenied; JobFailed stops it.
NOT_APPLIED: dict[str, type[LakefeedError] | None] = {
    **dict.fromkeys(["409", "429"]),
    **dict.fromkeys(["400", "404", "412", "422", "501", "html-404"], JobFailed),
    **dict.fromkeys(["401", "419"], AccessDenied),
    **dict.fromkeys(["500", "502", "503", "504", "hung-up", "cut", "html-200", "html-502"], Unreachable),
}
# If another commit came first, the commit is sent again, whatever the answer: it cannot land late.
OUTCOMES = {
    "applied": dict.fromkeys(NOT_APPLIED),
    "not-applied": NOT_APPLIED,
    "overtaken": dict.fromkeys(NOT_APPLIED),
}
STATUSES = [300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404, 405, 406, 408, 409, 410, 412, 413, 418]
STATUSES += [419, 421, 422, 425, 428, 429, 431, 451, 500, 501, 502, 503, 504, 505, 507, 508, 511, 520, 524, 599]
ANSWERS = (*map(str, STATUSES), "hung-up", "cut")
CHANGES: dict[str, Callable[[Table], object]] = {
    "append": lambda table: table.land(table.end, table.end + 2),
    "merge": lambda table: table.spark.sql(
        f"MERGE INTO {table.name} t USING (SELECT 0L AS id UNION ALL SELECT 99999L) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET id = t.id WHEN NOT MATCHED THEN INSERT *"
    ),
    "delete": lambda table: table.spark.sql(f"DELETE FROM {table.name} WHERE id = 99999"),
    "rewind": lambda table: table.move(table.end, table.end - 1, delete=True),
    "compact": lambda table: table.call("rewrite_data_files", ", options => map('rewrite-all', 'true')"),
    "manifests": lambda table: table.call("rewrite_manifests"),
    "expire": lambda table: table.expire(),
    "branch": lambda table: table.spark.sql(f"ALTER TABLE {table.name} CREATE OR REPLACE BRANCH b"),
    "columns": lambda table: table.spark.sql(f"ALTER TABLE {table.name} ADD COLUMN c{uuid.uuid4().hex} INT"),
}


@rest_only
@pytest.mark.timeout(600)
@pytest.mark.parametrize("situation", OUTCOMES)
def test_each_answer_to_a_commit_lands_it_once_or_is_a_clear_error(
    table: Table, catalog: RestCase, situation: str
) -> None:
    table.land(0, 2)
    found: dict[str, type[LakefeedError] | None] = {}
    others = []
    for answer in NOT_APPLIED:
        end = table.end
        catalog.server.held.hold(b'"lakefeed.ranges"')
        with ThreadPoolExecutor(1) as thread:
            landing = thread.submit(table.land, end, end + 2)
            assert catalog.server.held.arrived.wait(60)
            if situation == "overtaken":
                others.append(-end)
                table.plain(-end)
            catalog.server.fail_next(f"{'applied' if situation == 'applied' else 'not-applied'}-{answer}")
            catalog.server.held.release()
            error = landing.exception(120)
        catalog.server.fail_next()
        found[answer] = None if error is None else type(translate(error))
        if error is not None:
            table.land(end, end + 2)
        assert table.end == end + 2
    assert found == OUTCOMES[situation]
    assert table.ids() == [*sorted(others), *range(table.end)]


@rest_only
def test_the_files_of_a_commit_of_unknown_state_are_kept(table: Table, catalog: RestCase) -> None:
    table.land(0, 2)
    catalog.server.refused_reads = 20
    catalog.server.fail_next("applied-401")
    try:
        with pytest.raises(Exception, match="on purpose"):
            table.land(2, 4)
    finally:
        catalog.server.refused_reads = 0
    assert table.ids() == [0, 1, 2, 3]
    refused(lambda: table.land(2, 4), "begins at 2, the table ends at 4")


@rest_only
@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_no_answer_of_the_catalog_to_a_commit_loses_rows(table: Table, catalog: RestCase, change: str) -> None:
    table.land(0, 4)
    table.plain(99999)
    for answer in (*ANSWERS, "silent") if change == "append" else ANSWERS:
        for applied in ("applied", "not-applied"):
            if change == "rewind":
                table.land(table.end, table.end + 1)
            before = table.ids()
            if change == "delete":
                table.plain(99999)
            catalog.server.fail_next(f"{applied}-{answer}")
            with suppress(Exception):
                CHANGES[change](table)
            catalog.server.fail_next()
            table.spark.sql(f"REFRESH TABLE {table.name}")
            after = table.ids()
            assert set(before) - {99999} <= set(after) | {max(set(before) - {99999})}, (applied, answer)
            assert len(after) == len(set(after)) or change == "delete"


@rest_only
@pytest.mark.slow
def test_no_answer_of_the_catalog_to_a_creation_destroys_the_table(
    table: Table, catalog: RestCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog.server, "breaks_creations", True)
    for at, answer in enumerate(ANSWERS):
        for applied in ("applied", "not-applied"):
            made = Table(table.spark, f"{table.name}_{applied.partition('-')[0]}_{at}")
            change = TableChange(table=made.name, statements=creation(made.name, columns="id BIGINT"), is_new=True)
            catalog.server.fail_next(f"{applied}-{answer}")
            with suppress(Exception):
                carry_out(table.spark, change)
            assert not catalog.server.has_faults
            carry_out(table.spark, change)
            made.land(0, 2)
            assert made.ids() == [0, 1], (applied, answer)


@rest_only
def test_a_commit_that_was_refused_leaves_no_file(table: Table, catalog: RestCase) -> None:
    def files() -> set[Path]:
        return {each for each in catalog.folder.rglob("*") if each.is_file()}

    table.land(0, 2)
    table.set_property("commit.retry.num-retries", "0")
    before = files()
    refused(lambda: table.land(0, 2), "begins at 0, the table ends at 2")
    assert files() == before
    catalog.server.fail_next("not-applied-409")
    with pytest.raises(Exception, match="on purpose"):
        table.land(2, 4)
    assert files() == before
    table.land(2, 4)
    assert table.ids() == [0, 1, 2, 3]


@rest_only
def test_a_commit_that_was_sent_before_the_fence_was_taken_does_not_land(table: Table, catalog: RestCase) -> None:
    old = IcebergLedger(table.spark, table.name, FEED).take_fence()
    table.land(0, 2, fence=old)
    catalog.server.held.hold(b'"lakefeed.ranges"')
    with ThreadPoolExecutor(1) as thread:
        late = thread.submit(table.land, 2, 4, fence=old)
        assert catalog.server.held.arrived.wait(60)
        # The commit has already passed the check of the old driver, but has not reached the server.
        new = IcebergLedger(table.spark, table.name, FEED).take_fence()
        catalog.server.held.release()
        assert "another driver has taken over" in str(late.exception(60))
    table.land(2, 4, fence=new)
    assert table.ids() == [0, 1, 2, 3]


@rest_only
def test_a_catalog_that_answers_with_old_states_or_html_loses_and_doubles_nothing(
    table: Table, catalog: RestCase
) -> None:
    table.land(0, 2)
    table.set_property("commit.retry.num-retries", "2")
    try:
        catalog.server.deviation = deviations.stale()
        table.land(2, 4)
        # The catalog now answers with a table that ends at 2, so a driver that starts does not see the batch that
        # landed.
        with pytest.raises(Exception, match="branch main has changed"):
            table.land(2, 4)
        refused(lambda: table.land(4, 6), "begins at 4, the table ends at 2")
        catalog.server.deviation = deviations.html
        with pytest.raises(Exception, match=r"Not Found|not exist"):
            table.land(4, 6)
    finally:
        catalog.server.deviation = deviations.none
    table.land(4, 6)
    assert table.ids() == [0, 1, 2, 3, 4, 5]


@rest_only
def test_a_commit_that_arrives_late_does_not_remove_newer_commits(table: Table, catalog: RestCase) -> None:
    table.land(0, 2)
    table.set_property("commit.retry.min-wait-ms", "8000")
    catalog.server.fail_next("late-409")
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(table.land, 2, 4)
        until(lambda: not catalog.server.has_faults)
        time.sleep(2)  # The driver has read the table, and now waits before it retries the commit.
        catalog.server.late.set()
        assert catalog.server.applied_late.wait(30)
        table.plain(100)
        first.result(60)
    assert table.ids() == [0, 1, 2, 3, 100]


@rest_only
def test_an_upkeep_lease_that_was_requested_before_another_was_taken_is_refused(
    table: Table, catalog: RestCase
) -> None:
    table.land(0, 2)
    catalog.server.held.hold(b'"lakefeed.upkeep.lease"')
    late = Lease(table.spark, table.ledger().loaded(), name=table.name)
    with ThreadPoolExecutor(1) as thread:
        taking = thread.submit(late._take)
        assert catalog.server.held.arrived.wait(60)
        # The older request has passed its check, but its commit has not reached the server.
        first = Lease(table.spark, table.ledger().loaded(), name=table.name)
        assert first._take() is None
        catalog.server.held.release()
        held = taking.result(60)
    assert held is not None
    assert held.startswith(first._who)
    assert first._take() is None
    assert late._take() == table.ledger().properties()["lakefeed.upkeep.lease"]
    assert table.ids() == [0, 1]


@rest_only
@pytest.mark.parametrize("fault", ["not-applied-503", "applied-409", "applied-500", "applied-hung-up"])
def test_an_upkeep_lease_can_be_taken_after_any_answer_of_the_catalog(
    table: Table, catalog: RestCase, fault: Fault
) -> None:
    table.land(0, 2)
    lease = Lease(table.spark, table.ledger().loaded(), name=table.name)
    catalog.server.fail_next(fault)
    # The server may have granted the lease although it answered with an error: the owner can then take the lease again.
    with suppress(Py4JJavaError):
        assert lease._take() is None
    catalog.server.fail_next()
    assert lease._take() is None
    table.land(2, 4)
    assert table.ids() == [0, 1, 2, 3]
    assert len(table.spark.sql(f"SELECT * FROM {table.name}.manifests").collect()) == 2
