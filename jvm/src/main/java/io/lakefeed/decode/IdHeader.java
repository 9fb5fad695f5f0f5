package io.lakefeed.decode;

import java.io.Serializable;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** A record header that has a schema's id; {@link HeaderIds} reads it. The value or key has only the data. */
public record IdHeader(String name, byte[] value) {
    private static final String GLOBAL_ID = ".globalId";

    /** Returns whether the header has Apicurio's global id, a number that differs from the schema's id. */
    boolean isGlobalId() {
        return name.endsWith(GLOBAL_ID);
    }

    /** Returns whether the header has Confluent's bytes; otherwise it has Apicurio's number of 8 bytes. */
    boolean isConfluents() {
        return name.startsWith("__");
    }

    /** The names of the headers with ids of values, or of keys. */
    public static final class Names implements Serializable {
        private static final long serialVersionUID = 1L;

        private final String[] names;
        private final UTF8String[] texts;

        /** Lists the names of the headers with ids for a {@code part} of records: {@code value} or {@code key}. */
        Names(String part) {
            names = new String[] {
                "__" + part + "_schema_id", "apicurio." + part + ".contentId", "apicurio." + part + GLOBAL_ID
            };
            texts = Arrays.stream(names).map(UTF8String::fromString).toArray(UTF8String[]::new);
        }

        /**
         * Returns {@code found} plus a header, if the header has a schema's id. A header without a value is ignored, as
         * by Confluent's deserializer.
         *
         * @param found the record's headers so far; null for none
         */
        public IdHeader[] add(IdHeader[] found, String name, byte[] value) {
            for (String each : names) {
                if (each.equals(name)) {
                    return value == null ? found : longer(found, new IdHeader(each, value));
                }
            }
            return found;
        }

        /** Returns the headers of a record that have a schema's id; null if there are none. */
        IdHeader[] in(ArrayData headers) {
            IdHeader[] found = null;
            for (int at = 0; headers != null && at < headers.numElements(); at++) {
                InternalRow header = headers.getStruct(at, 2);
                UTF8String name = header.getUTF8String(0);
                for (int each = 0; each < texts.length; each++) {
                    if (texts[each].equals(name) && !header.isNullAt(1)) {
                        found = longer(found, new IdHeader(names[each], header.getBinary(1)));
                    }
                }
            }
            return found;
        }

        private static IdHeader[] longer(IdHeader[] found, IdHeader header) {
            if (found == null) {
                return new IdHeader[] {header};
            }
            IdHeader[] all = Arrays.copyOf(found, found.length + 1);
            all[found.length] = header;
            return all;
        }
    }
}
