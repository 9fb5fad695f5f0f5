package io.lakefeed.protobuf;

/**
 * Reports bytes that are no Protobuf message. The exception has no stack trace, because millions of records can be
 * broken.
 */
public final class Malformed extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** Creates the exception with the reason that the record's error shows. */
    public Malformed(String message) {
        super(message, null, false, false);
    }
}
