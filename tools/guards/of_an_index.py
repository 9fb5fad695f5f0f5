"""Guards of the Elasticsearch sink before, during and after the write of a batch."""

from __future__ import annotations

from tools.guards.guard import java, plugin, python

SEARCH = "packages/elasticsearch/tests/spark/test_elasticsearch.py::test_"
IDS = "packages/elasticsearch/tests/spark/test_document_ids.py::test_"

IN_AN_INDEX = (
    python(
        "elasticsearch: a replaced driver commits past the fence",
        "ledger/continuity",
        "if fence != commit.fence:",
        "if False:",
        f"{SEARCH}only_the_driver_that_took_the_fence_last_can_commit",
    ),
    python(
        "elasticsearch: a batch that does not continue the last batch commits",
        "ledger/continuity",
        "elif faults := violations(last.commit.ranges, commit):",
        "elif faults := []:",
        f"{SEARCH}a_batch_that_does_not_begin_at_the_ledgers_end_is_refused",
    ),
    python(
        "elasticsearch: a commit whose answer was lost lands again",
        "ledger/continuity",
        "if last is not None and last.commit_id == commit_id and last.commit.ranges == commit.ranges:",
        "if False:",
        f"{SEARCH}a_commit_whose_answer_is_lost_lands_once",
    ),
    plugin(
        "elasticsearch",
        "elasticsearch: a write to the ledger overwrites a newer one",
        "ledger",
        "f\"if_seq_no={found['_seq_no']}&if_primary_term={found['_primary_term']}\"",
        '"refresh=false"',
        f"{SEARCH}a_commit_sent_before_another_driver_took_the_fence_does_not_land",
    ),
    plugin(
        "elasticsearch",
        "elasticsearch: document versions do not rise with the fence",
        "ledger",
        '"number": int(document["number"]) + 1,',
        '"number": int(document["number"]),',
        f"{SEARCH}documents_of_a_replaced_driver_do_not_overwrite_newer_documents",
    ),
    java(
        "elasticsearch: an older document overwrites a newer one",
        "elasticsearch/BulkTask",
        '.put("version_type", "external_gte")',
        '.put("version_type", "internal").without("version")',
        f"{SEARCH}documents_of_a_replaced_driver_do_not_overwrite_newer_documents",
    ),
    java(
        "elasticsearch: a replaced driver repeats a request",
        "elasticsearch/BulkWriter",
        "if (!fence.equals(target.fence())) {",
        "if (false) {",
        f"{SEARCH}a_driver_reads_the_fence_again_before_a_retry",
    ),
    java(
        "elasticsearch: a refused document is lost",
        "elasticsearch/BulkWriter",
        "throw new BulkFailure(status == 403 ? Kind.DENIED : Kind.REFUSED, described);",
        "continue;",
        f"{SEARCH}the_error_about_a_refused_document_contains_no_value_of_the_document",
    ),
    java(
        "elasticsearch: a document that the server had no room for is lost",
        "elasticsearch/BulkWriter",
        "again.add(action);",
        "",
        f"{SEARCH}only_documents_that_a_busy_server_refused_are_sent_again",
    ),
    plugin(
        "elasticsearch",
        "elasticsearch: two keys share one document",
        "layout",
        'for each in ("\\\\", "/"):',
        "for each in ():",
        f"{IDS}a_document_id_encodes_the_key",
    ),
    plugin(
        "elasticsearch",
        "elasticsearch: several rows of one record share one document",
        "layout",
        "if stateful or not jvm.java(rows.sparkSession).query.StreamingPlan.onePerRecord(rows._jdf):",
        "if False:",
        f"{SEARCH}append_refuses_rows_that_do_not_come_from_exactly_one_record",
    ),
    plugin(
        "elasticsearch",
        "elasticsearch: documents of a recreated topic overwrite older ones",
        "index",
        "self.ledger.require_same_topics(standing, commit)",
        "pass",
        f"{SEARCH}a_recreated_topic_is_refused_because_its_documents_would_have_the_ids_of_older_documents",
    ),
    plugin(
        "elasticsearch",
        "elasticsearch: the index was removed while the feed runs",
        "index",
        "self._layout.require()",
        "pass",
        f"{SEARCH}a_removed_index_stops_the_feed_until_the_next_start",
    ),
    plugin(
        "elasticsearch",
        "elasticsearch: documents are acknowledged before they are on disk",
        "layout",
        'if translog.get("durability") == "async":',
        "if False:",
        f"{SEARCH}unsuitable_indexes_are_refused",
    ),
)
