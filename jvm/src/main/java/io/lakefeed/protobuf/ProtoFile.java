package io.lakefeed.protobuf;

import java.util.List;

/**
 * The layout of a {@code .proto} file's messages: the common part of its text and its descriptor.
 *
 * @param packageName without a dot at its end; empty for none
 * @param imports paths
 * @param messages in the order of the file, which message indexes count
 */
public record ProtoFile(String packageName, List<String> imports, List<Message> messages, List<Enum> enums) {

    /**
     * A message; a map field is a repeated one of a message {@code <Name>Entry} with {@code mapEntry}, as
     * descriptors have it.
     */
    public record Message(
            String name, List<Field> fields, List<Message> messages, List<Enum> enums, boolean mapEntry) {}

    /**
     * A field.
     *
     * @param type a scalar type's name, or a reference to a message or enum as it is written
     * @param oneof name of the oneof that it belongs to; null for none
     * @param delimited whether a message is encoded as a group
     * @param line of the text, for errors; 0 for a compiled schema
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
     * @param closed whether it has only the values of its schema; false for a compiled schema, which protoc has checked
     */
    public record Enum(String name, List<Value> values, boolean closed) {}

    /** One of an enum's values. */
    public record Value(String name, int number) {}

    /** How a field can be missing. */
    public enum Presence {
        /** Not written when it is zero: a missing field is zero. */
        IMPLICIT,
        /** A missing field is not set. */
        EXPLICIT,
        /** Never missing. */
        REQUIRED,
        /** Occurs any number of times. */
        REPEATED
    }
}
