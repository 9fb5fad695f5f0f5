"""The statements that change a table's partitions and sort order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.values import SortColumn
from lakefeed.sinks.iceberg.layout import FileLayout, statements


def layout(*, partition_by: list[str] | None = None, sort_by: list[str] | None = None) -> FileLayout:
    return FileLayout.of_sink(
        IcebergSinkConfig(table="lake.a.b", partition_by=partition_by or [], sort_by=sort_by or [])
    )


def said(have: FileLayout, want: FileLayout, *, partitions: bool = True, order: bool = True) -> list[str]:
    return list(statements("lake.a.b", have=have, want=want, partitions=partitions, order=order))


def test_statements_drop_and_add_changed_partitions() -> None:
    have = layout(partition_by=["days(at)", "bucket(16, id)", "city"])
    assert have.partitions == (("at", "day"), ("id", "bucket[16]"), ("city", "identity"))
    want = layout(partition_by=["hours(at)", "bucket(16, id)", "truncate(3, name)"])
    assert said(have, want) == [
        "ALTER TABLE `lake`.`a`.`b` DROP PARTITION FIELD days(`at`)",
        "ALTER TABLE `lake`.`a`.`b` DROP PARTITION FIELD `city`",
        "ALTER TABLE `lake`.`a`.`b` ADD PARTITION FIELD hours(`at`)",
        "ALTER TABLE `lake`.`a`.`b` ADD PARTITION FIELD truncate(3, `name`)",
    ]
    assert said(have, want, partitions=False) == []


def test_statements_order_rows_only_within_files() -> None:
    have, want = layout(), layout(sort_by=["at desc", "id", "name asc nulls last"])
    assert said(have, want) == [
        "ALTER TABLE `lake`.`a`.`b` WRITE LOCALLY ORDERED BY `at` DESC NULLS LAST, `id` ASC NULLS FIRST, "
        "`name` ASC NULLS LAST"
    ]
    assert said(want, have) == ["ALTER TABLE `lake`.`a`.`b` WRITE UNORDERED"]
    assert said(want, have, order=False) == []


def test_a_layout_follows_renamed_columns() -> None:
    have = layout(partition_by=["days(stop.at)", "zone"], sort_by=["stop.x desc", "zone"])
    renamed = have.rename_columns([(("stop", "at"), "time"), (("zone",), "area"), (("stop",), "halt"), (("x",), "y")])
    assert renamed == layout(partition_by=["days(halt.time)", "area"], sort_by=["halt.x desc", "area"])
    assert have.rename_columns([]) == have


@pytest.mark.parametrize("text", ["", "a b", "a desc desc", "a; DROP TABLE x", "a nulls middle"])
def test_an_invalid_sort_column_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a sort column"):
        SortColumn.parse(text)


columns = st.sampled_from(["a", "b", "c.d"])
transforms = st.one_of(
    columns,
    st.builds("{}({})".format, st.sampled_from(["years", "months", "days", "hours"]), columns),
    st.builds("{}({}, {})".format, st.sampled_from(["bucket", "truncate"]), st.integers(1, 99), columns),
)
orders = st.builds(
    "{} {}{}".format, columns, st.sampled_from(["asc", "DESC"]), st.sampled_from(["", " nulls first", " NULLS LAST"])
)


@settings(deadline=None)
@given(st.lists(transforms, max_size=4, unique=True), st.lists(orders, max_size=3))
def test_statements_are_empty_for_an_equal_layout(partition_by: list[str], sort_by: list[str]) -> None:
    have = layout(partition_by=partition_by, sort_by=sort_by)
    assert said(have, layout(partition_by=partition_by, sort_by=sort_by)) == []
    assert len(said(layout(), have)) == len(partition_by) + bool(sort_by)
