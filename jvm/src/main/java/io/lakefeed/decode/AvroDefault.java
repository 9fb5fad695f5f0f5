package io.lakefeed.decode;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.spark.sql.avro.AvroDeserializer;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataType;

/** Provides the value of a reader's field that the writer does not have. */
final class AvroDefault {
    private AvroDefault() {}

    /**
     * Returns the default as Spark's internal value; null if there is none and the field may be null.
     *
     * @throws BadRecord if there is none and the field may not be null
     */
    static Object of(Schema.Field field, DataType type) {
        if (!field.hasDefaultValue()) {
            if (isNullable(field.schema())) {
                return null;
            }
            throw new BadRecord("the writer's schema does not fit the reader's: it has no field " + field.name()
                    + ", which the reader requires");
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
        Schema schema = withoutNull(field.schema());
        return new AvroDeserializer(schema, type, "CORRECTED", false, "", -1).deserialize(datum).get();
    }

    /** Returns whether null is one of its values. */
    static boolean isNullable(Schema schema) {
        return schema.isUnion() ? schema.getTypes().stream().anyMatch(Schema::isNullable) : schema.isNullable();
    }

    /** Returns the other type of a union of null and one type; any other schema as it is. */
    static Schema withoutNull(Schema schema) {
        if (!schema.isUnion()) {
            return schema;
        }
        List<Schema> others = schema.getTypes().stream()
                .filter(each -> each.getType() != Schema.Type.NULL)
                .toList();
        return others.size() == 1 ? others.get(0) : schema;
    }
}
