package io.lakefeed.protobuf;

/** Reports a Protobuf schema that cannot be read or used; the message says where and why. */
public final class SchemaException extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;

    private final int reference;

    public SchemaException(String message) {
        super(message);
        reference = -1;
    }

    /** Creates the exception for an error in the schema's reference with this index. */
    public SchemaException(SchemaException reason, int reference) {
        super("reference " + (reference + 1) + ", " + reason.getMessage(), reason);
        this.reference = reference;
    }

    /** Returns the index of the reference that has the error; -1 if the schema itself has the error. */
    public int reference() {
        return reference;
    }
}
