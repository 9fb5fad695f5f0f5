package io.lakefeed.kinesis;

/** A stream cannot be read. The message begins with what Python knows it by, and says which stream it is. */
public final class StreamFailure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    StreamFailure(String message, Throwable cause) {
        super(message, cause);
    }

    /** Records that were not read yet cannot be read any more, or it cannot be shown that there were none. */
    static StreamFailure lost(String told) {
        return new StreamFailure("Kinesis has lost records: " + told, null);
    }
}
