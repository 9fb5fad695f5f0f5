package io.lakefeed.protobuf;

/** Reports bytes that are not a Protobuf message. Has no stack trace, because millions of records can be broken. */
public final class Malformed extends RuntimeException {
    private static final long serialVersionUID = 1L;

    public Malformed(String message) {
        super(message, null, false, false);
    }
}
