package io.lakefeed.decode;

import io.lakefeed.protobuf.ProtoFile;
import io.lakefeed.protobuf.ProtoTypes;
import io.lakefeed.protobuf.SchemaException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/** Parses Protobuf schemas for the driver. */
public final class ProtobufSchemas {
    private ProtobufSchemas() {}

    /**
     * Returns the types of a schema.
     *
     * @param text of the schema, in a form that {@link ProtoTypes#read} parses
     * @param referred the texts of the files that the schema imports
     * @throws SchemaException if a text cannot be read; the exception has the index of the import with the error
     */
    public static ProtoTypes types(String text, List<String> referred) {
        List<ProtoFile> files = new ArrayList<>();
        for (int at = 0; at < referred.size(); at++) {
            try {
                files.add(ProtoTypes.read(referred.get(at)));
            } catch (SchemaException invalid) {
                throw new SchemaException(invalid, at);
            }
        }
        return ProtoTypes.of(ProtoTypes.read(text), files);
    }

    public static ProtoTypes typesOfSet(String base64) {
        return ProtoTypes.ofSet(Base64.getDecoder().decode(base64));
    }

    /** Returns the Avro schema (JSON) of a message; if {@code name} is null, of the first message. */
    public static String avroSchema(ProtoTypes types, String name) {
        return ProtobufAvro.of(types.message(name)).toString();
    }

    /** Returns the full names of the messages that a record can have. */
    public static List<String> messages(ProtoTypes types) {
        return List.copyOf(types.messages().keySet());
    }
}
