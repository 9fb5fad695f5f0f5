package io.lakefeed.decode;

import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;

/** Skips a value that the reader does not need. */
interface AvroSkip {
    void over(BoundedDecoder in);

    AvroSkip NOTHING = in -> {};

    static AvroSkip of(Schema writer) {
        return of(writer, new IdentityHashMap<>());
    }

    /** Returns whether values of {@code writer} take no bytes. */
    static boolean isFree(Schema writer) {
        return of(writer) == NOTHING;
    }

    private static AvroSkip of(Schema writer, Map<Schema, AvroSkip> records) {
        return switch (writer.getType()) {
            case NULL -> NOTHING;
            case BOOLEAN -> BoundedDecoder::readBoolean;
            case INT -> BoundedDecoder::readInt;
            case LONG -> BoundedDecoder::readLong;
            case ENUM -> {
                int symbols = writer.getEnumSymbols().size();
                yield in -> in.readIndex(symbols, "an enum");
            }
            case FLOAT -> in -> in.skip(Float.BYTES);
            case DOUBLE -> in -> in.skip(Double.BYTES);
            case STRING, BYTES -> BoundedDecoder::skipBytes;
            case FIXED -> {
                int size = writer.getFixedSize();
                yield size == 0 ? NOTHING : in -> in.skip(size);
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
                AvroSkip known = records.get(writer);
                yield known == null ? record(writer, records) : known;
            }
        };
    }

    private static AvroSkip record(Schema writer, Map<Schema, AvroSkip> records) {
        OfRecord record = new OfRecord();
        records.put(writer, record);
        List<AvroSkip> fields = new ArrayList<>();
        List<String> names = new ArrayList<>();
        for (Schema.Field field : writer.getFields()) {
            AvroSkip skip = of(field.schema(), records);
            // Fields without bytes have no skipping step: a record can announce any number of items without bytes,
            // which must cost no time.
            if (skip != NOTHING) {
                fields.add(skip);
                names.add(field.name());
            }
        }
        record.fields = fields.toArray(AvroSkip[]::new);
        record.names = names.toArray(String[]::new);
        if (fields.isEmpty()) {
            records.put(writer, NOTHING);
            return NOTHING;
        }
        return record;
    }

    private static void items(BoundedDecoder in, AvroSkip item) {
        long index = 0;
        for (int count = in.skipItems(item == NOTHING); count != 0; count = in.skipItems(item == NOTHING)) {
            if (item == NOTHING) {
                continue;
            }
            try {
                for (; count > 0; count--, index++) {
                    item.over(in);
                }
            } catch (RuntimeException bad) {
                throw BadRecord.of(bad).item(index);
            }
        }
    }

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
