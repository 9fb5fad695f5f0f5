package io.lakefeed.decode;

/**
 * Reports that the schema registry is unavailable, refuses, or is another server. It never concerns one record: it
 * makes the task fail, so that an outage causes a retry and not a dead letter.
 */
public final class RegistryException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** Python recognises the error by this prefix, and shows the text behind it. */
    static final String PREFIX = "lakefeed schema registry ";

    RegistryException(String reason, String message) {
        super(PREFIX + reason + ": " + message);
    }
}
