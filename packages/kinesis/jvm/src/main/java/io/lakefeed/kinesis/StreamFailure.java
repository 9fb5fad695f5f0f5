package io.lakefeed.kinesis;

/**
 * Reports that a stream cannot be read. The message has a prefix that Python recognises, and the name of the stream.
 */
public final class StreamFailure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    StreamFailure(String message, Throwable cause) {
        super(message, cause);
    }

    /** Creates the failure for unread records that are lost or may be lost. */
    static StreamFailure lost(String described) {
        return new StreamFailure("Kinesis has lost records: " + described, null);
    }
}
