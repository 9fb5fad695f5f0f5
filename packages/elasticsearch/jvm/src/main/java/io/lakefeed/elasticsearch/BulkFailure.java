package io.lakefeed.elasticsearch;

/** Reports why documents were not written. The first word of the text names the cause, which Python reads. */
public final class BulkFailure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    enum Kind {
        /** The server refuses a document, and would refuse it again. */
        REFUSED,
        /** The login is wrong, or has no right to write. */
        DENIED,
        /** The index has a newer version, or another driver has the fence. */
        STALE,
        /** The server is unavailable or overloaded. */
        AWAY
    }

    BulkFailure(Kind kind, String described) {
        super("lakefeed bulk [" + kind + "]: " + described.replaceAll("\\s+", " "));
    }
}
