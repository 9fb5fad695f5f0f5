package io.lakefeed.protobuf;

/** Reports a Protobuf schema that cannot be read or used; the message says where and why. */
public final class SchemaException extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;

    private final int reference;

    /** Creates the exception with its reason. */
    public SchemaException(String message) {
        super(message);
        reference = -1;
    }

    /** Creates the exception for the reference at this place, from 0, of the schema that is read. */
    public SchemaException(SchemaException reason, int reference) {
        super("reference " + (reference + 1) + ", " + reason.getMessage(), reason);
        this.reference = reference;
    }

    /** Returns the place of the reference that the error is about, from 0; -1 for the schema itself. */
    public int reference() {
        return reference;
    }
}
