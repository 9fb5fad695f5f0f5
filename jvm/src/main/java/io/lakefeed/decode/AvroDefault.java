package io.lakefeed.decode;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataType;

/** Provides the value of a reader's field that the writer's schema lacks. */
final class AvroDefault {
    private AvroDefault() {}

    /**
     * Returns a field's default as Spark's internal value; null if the field has no default and is nullable.
     *
     * @throws BadRecord if the field has no default and is not nullable
     */
    static Object of(Schema.Field field, DataType type) {
        if (!field.hasDefaultValue()) {
            if (field.schema().isNullable()) {
                return null;
            }
            throw new BadRecord(AvroPlan.MISMATCH + "it has no field " + field.name() + ", which the reader requires");
        }
        Object datum = GenericData.get().getDefaultValue(field);
        if (datum == null) {
            return null;
        }
        if (datum instanceof Collection<?> list && list.isEmpty()) {
            return new GenericArrayData(new Object[0]);
        }
        if (datum instanceof Map<?, ?> map && map.isEmpty()) {
            return ArrayBasedMapData.apply(new Object[0], new Object[0]);
        }
        return SparkApi.deserialized(datum, withoutNull(field.schema()), type);
    }

    /** Returns the only type besides null in a union; any other schema unchanged. */
    static Schema withoutNull(Schema schema) {
        List<Schema> others = schema.isUnion() ? AvroTypes.types(schema) : List.of();
        return others.size() == 1 ? others.get(0) : schema;
    }
}
