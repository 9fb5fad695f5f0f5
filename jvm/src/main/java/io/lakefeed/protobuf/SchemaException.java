package io.lakefeed.protobuf;

/** Reports a Protobuf schema that cannot be read or used; the message says where and why. */
public final class SchemaException extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;

    /** Creates the exception with its reason. */
    public SchemaException(String message) {
        super(message);
    }
}
