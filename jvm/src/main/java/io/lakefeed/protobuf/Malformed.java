package io.lakefeed.protobuf;

/** Bytes that are no Protobuf message; costs no stack trace, since records can be broken by the million. */
public final class Malformed extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** With the reason. */
    public Malformed(String message) {
        super(message, null, false, false);
    }
}
