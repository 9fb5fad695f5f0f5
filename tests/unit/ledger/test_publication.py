"""The state of a feed's branch, read from a real Iceberg table in a folder."""

from pyiceberg.catalog import Catalog

from lakefeed.ledger.publication import AUDIT, StoredAudit, branch_state
from lakefeed.ledger.snapshot_summary import BRANCH
from lakefeed.ledger.snapshots import position_in, scanned
from tests.unit.ledger.test_snapshots import SCHEMA, rows, summary


def test_the_state_of_a_branch_has_unpublished_commits_and_divergence(catalog: Catalog) -> None:
    table = catalog.create_table("ns.branched", schema=SCHEMA)
    assert branch_state(table, "f") is None
    table.append(rows(0, 2), snapshot_properties=summary(0, 2))
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "staging").commit()
    with table.transaction() as changing:
        changing.set_properties({f"{BRANCH}.f": "staging"})
    state = branch_state(table, "f")
    assert state is not None
    assert (state.unpublished, state.since, state.sentence) == (0, None, "staging: all commits are published")

    table.append(rows(2, 5), snapshot_properties=summary(2, 5), branch="staging")
    audit = StoredAudit(1, 5.0, ("the table has 5 rows, at least 6 are expected",))
    with table.transaction() as changing:
        changing.set_properties({f"{AUDIT}.f": audit.to_json()})
    state = branch_state(table, "f")
    assert state is not None
    assert (state.unpublished, state.is_diverged, state.audit) == (1, False, audit)
    assert state.sentence.startswith("staging: 1 commit not published yet, the oldest from ")
    assert state.sentence.endswith("; the last audit failed: the table has 5 rows, at least 6 are expected")
    position = position_in(table, "f", where="ns.branched")
    assert position is not None
    assert position.ranges.ends == {("t", 0): 5}
    assert (scanned(table, "f").to_arrow().num_rows, scanned(table, "another").to_arrow().num_rows) == (5, 2)

    table.append(rows(9, 10))
    state = branch_state(table, "f")
    assert state is not None
    assert state.is_diverged
    assert "the branch cannot be published" in state.sentence


def test_stored_audit_ignores_an_invalid_property() -> None:
    for text in ("", "{}", "[]", '{"snapshot-id": 1, "at": "x", "failures": []}'):
        assert StoredAudit.of({f"{AUDIT}.f": text}, "f") is None
