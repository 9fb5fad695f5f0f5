package io.lakefeed.encode;

import java.io.IOException;
import java.io.ObjectInputStream;
import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * {@code encode(struct)} returns the struct as an Avro record, after Confluent's header if there is a schema id.
 *
 * <p>The options of the function's catalog ({@link EncodeCatalog}) are {@code avro} (the schema) and {@code schema-id}.
 */
public final class AvroEncode extends StructEncode {
    private static final long serialVersionUID = 1L;
    /** The output of each thread, whose buffer has room for the largest record so far. */
    private static final ThreadLocal<WireOutput> OUTPUT = ThreadLocal.withInitial(WireOutput::new);

    private final String schema;
    private final byte[] header;
    private transient AvroWriter writer;

    AvroEncode(Map<String, String> options, StructType arguments) {
        super(arguments, options.get("avro") + options.get("schema-id"));
        schema = options.get("avro");
        String id = options.get("schema-id");
        header = id == null ? new byte[0] : ByteBuffer.allocate(5).put((byte) 0).putInt(Integer.parseInt(id)).array();
        begin();
    }

    /** Returns why this class cannot encode rows of a type (given as JSON); null if it can. */
    public static String refusal(String schema, String type) {
        try {
            new AvroWriter(parsed(schema), (StructType) DataType.fromJson(type));
            return null;
        } catch (AvroWriter.Unfit unfit) {
            return unfit.getMessage();
        }
    }

    private static Schema parsed(String schema) {
        return new Schema.Parser().parse(schema);
    }

    private void begin() {
        writer = new AvroWriter(parsed(schema), type);
    }

    private void readObject(ObjectInputStream in) throws IOException, ClassNotFoundException {
        in.defaultReadObject();
        begin();
    }

    public byte[] invoke(InternalRow row) {
        if (row == null) {
            return null;
        }
        WireOutput out = OUTPUT.get().reset();
        out.raw(header);
        writer.write(row, out);
        return out.toBytes();
    }
}
