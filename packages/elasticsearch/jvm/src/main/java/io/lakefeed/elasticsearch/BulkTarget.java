package io.lakefeed.elasticsearch;

import java.io.Serializable;

/**
 * The index that documents are written to, and the limits of requests.
 *
 * @param bulk the path of the index's bulk API
 * @param ledger the path of the feed's document in the ledger
 * @param fence the fence of this driver; when another driver takes over, the ledger has a higher one
 * @param version the version of the documents to write; a document with a newer version is not changed
 * @param documents the most documents in one request
 * @param bytes the most bytes in one request, unless one document has more
 * @param patienceSeconds how long to wait for an unavailable cluster
 */
public record BulkTarget(
        String bulk, String ledger, String fence, long version, int documents, long bytes, int patienceSeconds)
        implements Serializable {}
