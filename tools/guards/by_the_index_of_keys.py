"""Guards of an upsert by the index of keys."""

from tools.guards.guard import java

INDEX = "tests/spark/test_key_index.py::test_"
WRONG = f"{INDEX}a_wrong_entry_is_noticed_in_the_commit_and_the_table_is_right"
UPSERTS = "tests/spark/test_upserts.py::test_"

BY_THE_INDEX_OF_KEYS = (
    java(
        "key index: it describes the newest snapshot",
        "upsert/KeyIndex",
        "boolean current = ready && same && describes(head);",
        "boolean current = ready && same;",
        f"{INDEX}table_equals_the_model_after_compaction_deletes_and_foreign_rows",
    ),
    java(
        "key index: only a rewrite of files is followed",
        "upsert/KeyIndex",
        "if (each == null || seen == MOST_SNAPSHOTS || !keepsRows(each)) {",
        "if (each == null || seen == MOST_SNAPSHOTS) {",
        f"{INDEX}table_equals_the_model_after_compaction_deletes_and_foreign_rows",
    ),
    java(
        "key index: a conflict with another writer's rows",
        "upsert/IndexedBatch",
        ".validateNoConflictingDataFiles()",
        "",
        f"{UPSERTS}of_two_that_insert_the_same_keys_at_once_neither_makes_a_second_copy",
    ),
    *(
        java(f"key index: {name}", f"upsert/{file}", condition, "if (false) {", test)
        for name, file, condition, test in (
            ("as many keys as rows", "KeyIndex", "if (current && rows - table.size() != surplus) {", WRONG),
            ("a row that is replaced has its key", "IndexedBatch", "if (!right[0]) {", WRONG),
            (
                "no row is deleted twice",
                "IndexedBatch",
                "if (done.stream().anyMatch(IndexedFile.Deletes::isDoubled)) {",
                WRONG,
            ),
            ("two rows of a key", "KeyIndex", "if (found && !known) {", INDEX + "two_rows_of_a_key_are_not_indexed"),
            (
                "a batch that reads records again is merged",
                "KeyIndex",
                "if (start.isNumber() && start.asLong() <= greatest.get(at)) {",
                UPSERTS + "the_same_batch_twice_leaves_the_table_as_it_is_and_the_ledger_knows_it",
            ),
            (
                "what another writer has landed meanwhile is not landed again",
                "IndexedBatch",
                "if (moved != null || readsAgain()) {",
                UPSERTS + "of_two_that_insert_the_same_keys_at_once_neither_makes_a_second_copy",
            ),
            (
                "a key whose changes are in two partitions",
                "IndexedBatch",
                "if (index.table.partition() >= 0 && index.table.partition() != source) {",
                UPSERTS + "a_key_in_two_partitions_stops_the_feed_unless_a_column_orders_it",
            ),
            (
                "the newest change of a key wins",
                "IndexedBatch",
                "if (entries.offset[at] > others.offset[otherAt]) {",
                INDEX + "a_key_that_comes_again_after_its_rows_were_written_has_one_row",
            ),
            (
                "a change that lacks a value is merged",
                "KeyIndex",
                "if (batch.lacksValues()) {",
                f"{INDEX}a_batch_whose_changes_lack_values_is_merged_and_others_are_indexed",
            ),
        )
    ),
)
