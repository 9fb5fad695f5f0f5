package io.lakefeed.elasticsearch;

import java.io.Serializable;

/**
 * The target of documents and their owner.
 *
 * @param bulk path of the index's bulk API
 * @param ledger path of the feed's document in the ledger
 * @param fence of this driver; the ledger has it until another driver takes over
 * @param version of each document; a document with a newer one is not changed
 * @param documents the most in one request
 * @param bytes the most in one request, unless one document has more
 * @param patienceSeconds how long an unavailable cluster is retried
 */
public record BulkTarget(
        String bulk, String ledger, String fence, long version, int documents, long bytes, int patienceSeconds)
        implements Serializable {}
