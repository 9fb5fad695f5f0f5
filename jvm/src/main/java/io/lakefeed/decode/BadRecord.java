package io.lakefeed.decode;

/** One record cannot be read; its message becomes the record's error. Costs no stack trace. */
final class BadRecord extends RuntimeException {
    private static final long serialVersionUID = 1L;

    BadRecord(String message) {
        super(message, null, false, false);
    }
}
