package io.lakefeed.decode;

import java.util.IdentityHashMap;
import java.util.Map;
import org.apache.avro.Schema;

/** Reads over a value that nobody wants, without making anything of it. */
interface AvroSkip {
    /** Leaves {@code in} behind the value. */
    void over(BoundedDecoder in);

    /** What skips values of {@code writer}. */
    static AvroSkip of(Schema writer) {
        return of(writer, new IdentityHashMap<>());
    }

    private static AvroSkip of(Schema writer, Map<Schema, OfRecord> records) {
        return switch (writer.getType()) {
            case NULL -> in -> {};
            case BOOLEAN -> BoundedDecoder::readBoolean;
            case INT, LONG, ENUM -> BoundedDecoder::readLong;
            case FLOAT -> in -> in.skip(Float.BYTES);
            case DOUBLE -> in -> in.skip(Double.BYTES);
            case STRING, BYTES -> BoundedDecoder::skipBytes;
            case FIXED -> {
                int size = writer.getFixedSize();
                yield in -> in.skip(size);
            }
            case ARRAY -> {
                AvroSkip item = of(writer.getElementType(), records);
                yield in -> items(in, item);
            }
            case MAP -> {
                AvroSkip value = of(writer.getValueType(), records);
                yield in -> items(in, entry -> {
                    entry.skipBytes();
                    value.over(entry);
                });
            }
            case UNION -> {
                AvroSkip[] branches =
                        writer.getTypes().stream().map(each -> of(each, records)).toArray(AvroSkip[]::new);
                yield in -> branches[in.readIndex(branches.length, "a union")].over(in);
            }
            case RECORD -> {
                OfRecord known = records.get(writer);
                if (known == null) {
                    known = new OfRecord();
                    records.put(writer, known);
                    known.names = writer.getFields().stream().map(Schema.Field::name).toArray(String[]::new);
                    known.fields =
                            writer.getFields().stream().map(each -> of(each.schema(), records)).toArray(AvroSkip[]::new);
                }
                yield known;
            }
        };
    }

    private static void items(BoundedDecoder in, AvroSkip item) {
        long index = 0;
        for (int count = in.skipItems(); count != 0; count = in.skipItems()) {
            try {
                for (; count > 0; count--, index++) {
                    item.over(in);
                }
            } catch (RuntimeException bad) {
                throw BadRecord.of(bad).item(index);
            }
        }
    }

    /** A record, which may lie in itself. */
    final class OfRecord implements AvroSkip {
        private AvroSkip[] fields;
        private String[] names;

        private OfRecord() {}

        @Override
        public void over(BoundedDecoder in) {
            in.enter();
            int at = 0;
            try {
                for (; at < fields.length; at++) {
                    fields[at].over(in);
                }
            } catch (RuntimeException bad) {
                throw BadRecord.of(bad).at(names[at]);
            }
            in.leave();
        }
    }
}
