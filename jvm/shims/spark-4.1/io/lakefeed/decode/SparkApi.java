package io.lakefeed.decode;

import com.fasterxml.jackson.core.StreamReadConstraints;
import java.io.IOException;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;
import org.apache.spark.SparkRuntimeException;
import org.apache.spark.sql.avro.AvroDeserializer;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.types.variant.Variant;
import org.apache.spark.types.variant.VariantBuilder;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.unsafe.types.VariantVal;

/** Calls what has another form in other lines of Spark, or in the Avro that they have. */
final class SparkApi {
    private SparkApi() {}

    static boolean isUtf8(UTF8String text) {
        return text.isValid();
    }

    /** Returns a parser of writers' schemas, which accepts odd names and defaults of the wrong type. */
    static Schema.Parser parser() {
        return new Schema.Parser(NameValidator.NO_VALIDATION).setValidateDefaults(false);
    }

    /** Converts a value of Avro's generic API to Spark's internal value. */
    static Object deserialized(Object datum, Schema schema, DataType type) {
        return new AvroDeserializer(schema, type, "CORRECTED", false, "", -1).deserialize(datum).get();
    }

    static StreamReadConstraints.Builder namesOfAnyLength() {
        return StreamReadConstraints.builder().maxNameLength(Integer.MAX_VALUE);
    }

    static boolean isVariant(DataType type) {
        return type == DataTypes.VariantType;
    }

    /**
     * Returns JSON text as a variant.
     *
     * @throws BadRecord if it has a key twice, or is too large
     */
    static Object variant(String json) throws IOException {
        try {
            Variant variant = VariantBuilder.parseJson(json, false);
            return new VariantVal(variant.getValue(), variant.getMetadata());
        } catch (SparkRuntimeException refused) {
            boolean isTwice = "VARIANT_DUPLICATE_KEY".equals(refused.getCondition());
            throw new BadRecord(isTwice ? "a duplicate key" : "too large for a variant");
        }
    }
}
