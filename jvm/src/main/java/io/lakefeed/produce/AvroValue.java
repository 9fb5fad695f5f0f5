package io.lakefeed.produce;

import io.lakefeed.protobuf.WireOutput;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.Serializable;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.types.StructType;

/** Encodes columns of a row as {@link AvroEncode} encodes a struct of them; for one thread. */
final class AvroValue implements Serializable {
    private static final long serialVersionUID = 1L;

    private final String schema;
    private final StructType type;
    private final byte[] header;
    private final int[] places;
    private transient AvroWriter writer;
    private transient WireOutput out;

    /**
     * Creates an encoder.
     *
     * @param type the columns, as fields of a struct
     * @param places where each stands in the row
     */
    AvroValue(String schema, StructType type, byte[] header, int[] places) {
        this.schema = schema;
        this.type = type;
        this.header = header;
        this.places = places;
        begin();
    }

    private void begin() {
        writer = new AvroWriter(new Schema.Parser().parse(schema), type, places);
        out = new WireOutput();
    }

    private void readObject(ObjectInputStream in) throws IOException, ClassNotFoundException {
        in.defaultReadObject();
        begin();
    }

    byte[] of(SpecializedGetters row) {
        out.reset();
        out.raw(header);
        writer.write(row, out);
        return out.toBytes();
    }
}
