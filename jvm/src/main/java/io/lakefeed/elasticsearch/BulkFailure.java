package io.lakefeed.elasticsearch;

/** Why documents were not written; Python reads the kind out of the text. */
public final class BulkFailure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** What became of them. */
    enum Kind {
        /** The server does not take a document, now or later. */
        REFUSED,
        /** The login is wrong, or may not write. */
        DENIED,
        /** A newer version is there, or another driver has the fence. */
        STALE,
        /** The server is away, or has too much to do. */
        AWAY
    }

    BulkFailure(Kind kind, String told) {
        super("lakefeed bulk [" + kind + "]: " + told.replaceAll("\\s+", " "));
    }
}
