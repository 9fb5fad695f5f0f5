package io.lakefeed.decode;

/**
 * Reports that the schema registry is unavailable, refuses requests, or is another server. The exception makes the task
 * fail, so that an outage of the registry causes a retry and not dead letters.
 */
public final class RegistryException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** Python recognises the error by this prefix, and shows the text after it. */
    static final String PREFIX = "lakefeed schema registry ";

    RegistryException(String reason, String message) {
        super(PREFIX + reason + ": " + message);
    }
}
