package io.lakefeed.decode;

import com.fasterxml.jackson.core.StreamReadConstraints;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import org.apache.avro.Schema;
import org.apache.spark.sql.avro.AvroDeserializer;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;

/** Calls what has another form in other lines of Spark, or in the Avro that they have. */
final class SparkApi {
    private SparkApi() {}

    static boolean isUtf8(UTF8String text) {
        try {
            StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(text.getBytes()));
            return true;
        } catch (CharacterCodingException invalid) {
            return false;
        }
    }

    /** Returns a parser of writers' schemas, which accepts odd names and defaults of the wrong type. */
    static Schema.Parser parser() {
        return new Schema.Parser().setValidate(false).setValidateDefaults(false);
    }

    /** Converts a value of Avro's generic API to Spark's internal value. */
    static Object deserialized(Object datum, Schema schema, DataType type) {
        return new AvroDeserializer(schema, type, "CORRECTED", false).deserialize(datum).get();
    }

    static StreamReadConstraints.Builder namesOfAnyLength() {
        return StreamReadConstraints.builder();
    }

    /** Returns false: this line of Spark has no variants. */
    static boolean isVariant(DataType type) {
        return false;
    }

    /** Throws an exception: this line of Spark has no variants. */
    static Object variant(String json) throws IOException {
        throw new UnsupportedOperationException("Spark 3.5 has no variants");
    }
}
