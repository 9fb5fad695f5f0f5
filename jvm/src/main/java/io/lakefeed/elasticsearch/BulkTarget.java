package io.lakefeed.elasticsearch;

import java.io.Serializable;

/**
 * Where documents go, and whose they are.
 *
 * @param bulk path of the index's bulk API
 * @param ledger path of the feed's document in the ledger
 * @param fence of this driver, which the ledger has as long as no other one has taken over
 * @param version of each document: a document that has a newer one stays as it is
 * @param documents of one request at most
 * @param bytes of one request at most, but for a document that has more
 * @param patienceSeconds how long the cluster may be away
 */
public record BulkTarget(
        String bulk, String ledger, String fence, long version, int documents, long bytes, int patienceSeconds)
        implements Serializable {}
