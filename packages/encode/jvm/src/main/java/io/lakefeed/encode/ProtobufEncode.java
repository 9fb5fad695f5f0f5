package io.lakefeed.encode;

import io.lakefeed.decode.ProtobufSchemas;
import io.lakefeed.protobuf.ProtoMessage;
import io.lakefeed.protobuf.ProtoTypes;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;

/**
 * {@code encode(struct)} returns the struct as a Protobuf message, after Confluent's header if there is a schema id.
 *
 * <p>The options of the function's catalog ({@link EncodeCatalog}) are {@code schema} (text, or a descriptor in
 * Base64), {@code message}, {@code references.0}, {@code references.1}, … (texts of imported files) and {@code
 * schema-id}.
 */
public final class ProtobufEncode extends StructEncode {
    private static final long serialVersionUID = 1L;

    private final String schema;
    private final String[] references;
    private final String message;
    private final Integer schemaId;
    private transient byte[] header;
    private transient ProtobufWriter writer;

    ProtobufEncode(Map<String, String> options, StructType arguments) {
        super(arguments, options.get("schema") + options.get("message") + options.get("schema-id"));
        schema = options.get("schema");
        message = options.get("message");
        schemaId = options.containsKey("schema-id") ? Integer.valueOf(options.get("schema-id")) : null;
        long count = options.keySet().stream().filter(key -> key.startsWith("references.")).count();
        references = new String[(int) count];
        Arrays.setAll(references, at -> options.get("references." + at));
        begin(); // Called here, too, so that the driver reports a column that does not fit.
    }

    private void begin() {
        ProtoTypes types = ProtobufSchemas.types(schema, List.of(references));
        ProtoMessage found = types.message(message);
        header = schemaId == null ? new byte[0] : header(schemaId, indexes(types.indexes(found)));
        writer = new ProtobufWriter(found, type);
    }

    /** Returns Confluent's header: a zero byte, the schema's id, and the message's indexes. */
    private static byte[] header(int schemaId, byte[] indexes) {
        return ByteBuffer.allocate(5 + indexes.length).put((byte) 0).putInt(schemaId).put(indexes).array();
    }

    /** Returns a message's indexes in its schema, which follow the schema's id; null stands for the first message. */
    public static byte[] indexes(String schema, List<String> references, String message) {
        ProtoTypes types = ProtobufSchemas.types(schema, references);
        return indexes(types.indexes(types.message(message)));
    }

    /** Returns the bytes of a message's indexes; a single 0 is short for the first message. */
    private static byte[] indexes(List<Integer> indexes) {
        WireOutput out = new WireOutput();
        if (indexes.equals(List.of(0))) {
            out.zigzag(0);
        } else {
            out.zigzag(indexes.size());
            indexes.forEach(out::zigzag);
        }
        return out.toBytes();
    }

    public byte[] invoke(InternalRow row) {
        if (row == null) {
            return null;
        }
        synchronized (this) {
            if (writer == null) {
                begin();
            }
        }
        WireOutput out = new WireOutput();
        out.raw(header);
        writer.write(row, out);
        return out.toBytes();
    }
}
