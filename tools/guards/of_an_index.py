"""Guards of a document sink before, during and after the write of a batch."""

from __future__ import annotations

from tools.guards.guard import java, plugin, python

SEARCH = "packages/elasticsearch/tests/spark/test_elasticsearch.py::test_"
IDS = "packages/elasticsearch/tests/spark/test_document_ids.py::test_"

IN_AN_INDEX = (
    python(
        "elasticsearch: the fence",
        "ledger/continuity",
        "if fence != commit.fence:",
        "if False:",
        f"{SEARCH}only_the_driver_that_took_the_fence_last_can_commit",
    ),
    python(
        "elasticsearch: continuity",
        "ledger/continuity",
        "elif found := violations(last.commit.ranges, commit):",
        "elif found := []:",
        f"{SEARCH}a_batch_lands_only_where_the_last_one_ended",
    ),
    python(
        "elasticsearch: a commit that has landed while its answer was lost",
        "ledger/continuity",
        "if last is not None and last.commit_id == commit_id and last.commit.ranges == commit.ranges:",
        "if False:",
        f"{SEARCH}a_commit_whose_answer_is_lost_has_landed_once",
    ),
    plugin(
        "elasticsearch",
        "elasticsearch: the ledger by compare-and-set",
        "ledger",
        "f\"if_seq_no={found['_seq_no']}&if_primary_term={found['_primary_term']}\"",
        '"refresh=false"',
        f"{SEARCH}a_commit_that_was_on_its_way_when_the_fence_was_taken_does_not_land",
    ),
    plugin(
        "elasticsearch",
        "elasticsearch: versions that rise with each fence",
        "ledger",
        '"number": int(document["number"]) + 1,',
        '"number": int(document["number"]),',
        f"{SEARCH}what_an_older_driver_still_writes_does_not_come_over_what_is_newer",
    ),
    java(
        "elasticsearch: a document that has a newer version stays",
        "elasticsearch/BulkTask",
        '.put("version_type", "external_gte")',
        '.put("version_type", "internal").without("version")',
        f"{SEARCH}what_an_older_driver_still_writes_does_not_come_over_what_is_newer",
    ),
    java(
        "elasticsearch: the fence before anything is sent again",
        "elasticsearch/BulkWriter",
        "if (!fence.equals(target.fence())) {",
        "if (false) {",
        f"{SEARCH}a_driver_that_was_cut_off_asks_for_its_fence_before_it_writes_again",
    ),
    java(
        "elasticsearch: a document that is refused",
        "elasticsearch/BulkWriter",
        "throw new BulkFailure(status == 403 ? Kind.DENIED : Kind.REFUSED, described);",
        "continue;",
        f"{SEARCH}a_document_that_the_server_refuses_stops_the_feed_without_its_content",
    ),
    java(
        "elasticsearch: what the server had no room for",
        "elasticsearch/BulkWriter",
        "again.add(action);",
        "",
        f"{SEARCH}only_what_the_server_had_no_room_for_is_sent_again",
    ),
    plugin(
        "elasticsearch",
        "elasticsearch: one document for each key",
        "documents",
        'for each in ("\\\\", "/"):',
        "for each in ():",
        f"{IDS}an_id_shows_its_key",
    ),
    plugin(
        "elasticsearch",
        "elasticsearch: rows of one record each",
        "documents",
        "if stateful or not jvm.java(rows.sparkSession).query.StreamingPlan.onePerRecord(rows._jdf):",
        "if False:",
        f"{SEARCH}rows_without_a_record_of_their_own_are_refused",
    ),
    plugin(
        "elasticsearch",
        "elasticsearch: another topic of the same name",
        "index",
        "self.ledger.require_same_topics(standing, commit)",
        "pass",
        f"{SEARCH}a_topic_that_was_recreated_would_take_the_ids_of_the_one_before",
    ),
    plugin(
        "elasticsearch",
        "elasticsearch: an index that was removed meanwhile",
        "index",
        "self._layout.require()",
        "pass",
        f"{SEARCH}an_index_that_is_removed_is_not_begun_again_in_silence",
    ),
    plugin(
        "elasticsearch",
        "elasticsearch: documents that are acknowledged before they are on disk",
        "layout",
        'if translog.get("durability") == "async":',
        "if False:",
        f"{SEARCH}what_an_index_has_to_be",
    ),
)
