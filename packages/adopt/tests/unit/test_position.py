"""The options ``--from`` and ``--to`` are parsed, and ``verify`` accepts a takeover in the ledger."""

import pytest

from lakefeed.errors import ConfigError
from lakefeed.ledger.snapshot_summary import ADOPTED, Adoption, Commit
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.operations.verify.audit import findings
from lakefeed.operations.verify.audit_rows import row_findings
from lakefeed.operations.verify.evidence import Evidence
from lakefeed.operations.verify.row_offsets import RowCoverage
from lakefeed_adopt.export import ExportTarget
from lakefeed_adopt.position import TOOLS, Origin


def test_the_path_in_the_option_from_may_contain_colons() -> None:
    assert Origin.parse("spark-checkpoint:s3a://b/c/") == Origin("spark-checkpoint", "s3a://b/c")
    assert str(Origin.parse("group:etl")) == "group:etl"
    assert ExportTarget.parse("spark-checkpoint:/tmp/c") == ExportTarget("spark-checkpoint", "/tmp/c")


def test_the_name_of_a_connector_is_optional() -> None:
    assert Origin.parse("iceberg-connect") == Origin("iceberg-connect", "")
    assert Origin.parse("iceberg-connect:trips") == Origin("iceberg-connect", "trips")
    assert str(Origin.parse("iceberg-connect")) == "iceberg-connect"


@pytest.mark.parametrize(
    "text", ["", "spark", "group", "group:", "spark-checkpoint:", "table:x", "hudi", "s3-files:", "connect"]
)
def test_the_error_of_an_invalid_from_or_to_lists_the_allowed_forms(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Origin.parse(text)
    assert all(tool in (refused.value.hint or "") for tool in TOOLS)
    with pytest.raises(ConfigError):
        ExportTarget.parse(text)


def taken_over(at: int = 70) -> Commit:
    ranges = OffsetRanges((OffsetRange("t", 0, at, at),), {"t": "A"})
    return Commit("f", 0, ranges, snapshot_id=8, adopted=Adoption("group", "etl", 7))


def test_the_properties_of_a_commit_describe_the_takeover() -> None:
    properties = taken_over().properties()
    assert properties[ADOPTED] == '{"from":"group","place":"etl","after":7}'
    assert Commit.of(8, properties).adopted == Adoption("group", "etl", 7)
    assert Commit.of(8, properties).move is None
    with pytest.raises(ConfigError):
        Adoption.from_json("{}")


def test_verify_does_not_count_records_before_the_takeover() -> None:
    batch = Commit("f", 0, OffsetRanges((OffsetRange("t", 0, 70, 70),), {"t": "A"}), snapshot_id=9)
    evidence = Evidence(commits=(taken_over(), batch), row_coverage={("t", 0): RowCoverage(before=70)})
    found = {finding.kind: finding for finding in findings(evidence)}
    assert (
        found["adopted"].what
        == "snapshot 8: the table was taken over from group; only later offsets are verified: t-0 at 70"
    )
    assert not any(finding.fault for finding in found.values())
    # If there was no takeover, rows before the feed's first commit are a fault.
    others = Evidence(commits=(batch,), row_coverage={("t", 0): RowCoverage(before=70)})
    assert [finding.kind for finding in row_findings(others)] == ["outside"]
