package io.lakefeed.decode;

/**
 * The schema registry did not answer, refused, or is not one. Never about one record: it makes the task fail, so
 * that an outage is a retry and not a dead letter.
 */
public final class RegistryException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** What the user must see of it begins with this; Python recognises it. */
    static final String PREFIX = "lakefeed schema registry ";

    RegistryException(String reason, String message) {
        super(PREFIX + reason + ": " + message);
    }
}
