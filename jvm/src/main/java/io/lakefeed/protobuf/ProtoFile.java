package io.lakefeed.protobuf;

import java.util.List;

/**
 * The layout of a {@code .proto} file's messages, from its text or its descriptor.
 *
 * @param packageName the package, without a dot at its end; empty for no package
 * @param imports the paths of the imported files
 * @param messages the top-level messages in the order of the file, which message indexes count
 */
public record ProtoFile(String packageName, List<String> imports, List<Message> messages, List<Enum> enums) {

    /** A message; a map is a repeated message with {@code mapEntry}, as in descriptors. */
    public record Message(
            String name, List<Field> fields, List<Message> messages, List<Enum> enums, boolean mapEntry) {}

    /**
     * A field.
     *
     * @param type the name of a scalar type, message or enum, as written in the text
     * @param oneof the name of the oneof that contains the field; null for none
     * @param delimited whether a message is encoded as a group
     * @param line the number of the field's line in the text, for errors; 0 for a compiled schema
     */
    public record Field(
            String name, int number, String type, Presence presence, String oneof, boolean delimited, int line) {

        String inMessage(String message) {
            return (line == 0 ? "" : "line " + line + ": ") + "the field " + name + " of " + message;
        }
    }

    /**
     * An enum type.
     *
     * @param closed whether the schema lists all values of the enum; false for a compiled schema, which protoc has
     * already checked
     */
    public record Enum(String name, List<Value> values, boolean closed) {}

    /** A value of an enum. */
    public record Value(String name, int number) {}

    /** How a reader treats a field that a record lacks, or has several times. */
    public enum Presence {
        /** A missing field has the value zero. */
        IMPLICIT,
        /** A missing field has no value. */
        EXPLICIT,
        /** The field must not be missing. */
        REQUIRED,
        /** The field can occur any number of times. */
        REPEATED
    }
}
