package io.lakefeed.decode;

import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** The steps that contain other steps: for records, unions, arrays and maps. */
final class AvroNested {
    private AvroNested() {}

    private static byte[] utf8(String name) {
        return name.getBytes(StandardCharsets.UTF_8);
    }

    /** Reads a record: the writer's fields in their order, then the fields that only the reader has. */
    static final class OfRecord extends AvroStep {
        /** The value, in the {@code places} of {@link #become}, for a field that is skipped. */
        static final int NOWHERE = -1;

        private AvroStep[] steps;
        private int[] places;
        private byte[][] names;
        private String[] written;
        private byte[] common;
        private final boolean repeated;

        /** Creates the step of an Avro record; {@code repeated} if one Kafka record can contain any number of them. */
        OfRecord(boolean repeated) {
            this.repeated = repeated;
        }

        /**
         * Sets the steps; not in the constructor, because a record can contain itself.
         *
         * @param places for each step, the ordinal of its field in the row
         * @param names the names of the reader's fields
         * @param written for each step, the name of its field in the writer's schema, for errors
         */
        void become(AvroStep[] steps, int[] places, String[] names, String[] written) {
            this.steps = steps;
            this.places = places;
            this.names = Stream.of(names).map(AvroNested::utf8).toArray(byte[][]::new);
            this.written = written;
            this.common = new byte[steps.length];
            for (int at = 0; at < steps.length; at++) {
                common[at] = steps[at].common();
            }
        }

        void fill(BoundedDecoder in, DecodedRow row) {
            final AvroStep[] all = steps;
            final int[] into = places;
            final byte[] kinds = common;
            int at = 0;
            try {
                for (; at < all.length; at++) {
                    int field = into[at];
                    switch (kinds[at]) {
                        case INT -> row.put(field, (long) in.readInt());
                        case LONG -> row.put(field, in.readLong());
                        case DOUBLE -> row.put(field, in.readDouble());
                        case STRING -> row.put(field, in.readString());
                        default -> all[at].read(in, row, field);
                    }
                }
            } catch (RuntimeException bad) {
                throw BadRecord.of(bad).at(written[at]);
            }
        }

        @Override
        Object read(BoundedDecoder in) {
            if (repeated) {
                in.charge(DecodedRow.memory(names.length));
            }
            DecodedRow row = new DecodedRow(names.length);
            fill(in, row);
            return row;
        }

        @Override
        void write(BoundedDecoder in, JsonText json) {
            in.enter();
            json.open('{');
            int at = 0;
            try {
                for (; at < steps.length; at++) {
                    if (places[at] != NOWHERE) {
                        json.name(names[places[at]]);
                    }
                    steps[at].write(in, json);
                }
            } catch (RuntimeException bad) {
                throw BadRecord.of(bad).at(written[at]);
            }
            json.close('}');
            in.leave();
        }
    }

    static final class Skipped extends AvroStep {
        private final AvroSkip skip;

        Skipped(AvroSkip skip) {
            this.skip = skip;
        }

        @Override
        Object read(BoundedDecoder in) {
            skip.over(in);
            return null;
        }

        @Override
        void read(BoundedDecoder in, DecodedRow row, int nowhere) {
            skip.over(in);
        }

        @Override
        void write(BoundedDecoder in, JsonText json) {
            skip.over(in);
        }
    }

    /** Reads a value that the writer's schema declares as a union: the index of a branch, then the branch's value. */
    static final class OfUnion extends AvroStep {
        private final AvroStep[] branches;

        OfUnion(AvroStep[] branches) {
            this.branches = branches;
        }

        private AvroStep next(BoundedDecoder in) {
            return branches[in.readIndex(branches.length, "a union")];
        }

        @Override
        Object read(BoundedDecoder in) {
            return next(in).read(in);
        }

        @Override
        void read(BoundedDecoder in, DecodedRow row, int field) {
            next(in).read(in, row, field);
        }

        @Override
        void write(BoundedDecoder in, JsonText json) {
            next(in).write(in, json);
        }
    }

    /** Reads a value into a struct in which only one field is set: the column of a reader's union of several types. */
    static final class OfMember extends AvroStep {
        private final boolean repeated;
        private final int members;
        private final int member;
        private final AvroStep step;

        OfMember(int members, int member, AvroStep step, boolean repeated) {
            this.repeated = repeated;
            this.members = members;
            this.member = member;
            this.step = step;
        }

        @Override
        Object read(BoundedDecoder in) {
            if (repeated) {
                in.charge(DecodedRow.memory(members));
            }
            DecodedRow row = new DecodedRow(members);
            for (int each = 0; each < members; each++) {
                if (each != member) {
                    row.setNullAt(each);
                }
            }
            try {
                step.read(in, row, member);
            } catch (RuntimeException bad) {
                throw BadRecord.of(bad).at(AvroTypes.member(member));
            }
            return row;
        }

        @Override
        void write(BoundedDecoder in, JsonText json) {
            json.open('{');
            json.name(utf8(AvroTypes.member(member)));
            try {
                step.write(in, json);
            } catch (RuntimeException bad) {
                throw BadRecord.of(bad).at(AvroTypes.member(member));
            }
            json.close('}');
        }
    }

    static final class OfArray extends AvroStep {
        private final AvroStep item;
        private final boolean free;

        /** Creates the step of an array; {@code free} if its items take no bytes. */
        OfArray(AvroStep item, boolean free) {
            this.item = item;
            this.free = free;
        }

        @Override
        Object read(BoundedDecoder in) {
            return item.readItems(in, free);
        }

        @Override
        void write(BoundedDecoder in, JsonText json) {
            json.open('[');
            long index = 0;
            for (int count = in.readItemCount(free); count != 0; count = in.readItemCount(free)) {
                try {
                    for (; count > 0; count--, index++) {
                        json.next();
                        item.write(in, json);
                    }
                } catch (RuntimeException bad) {
                    throw BadRecord.of(bad).item(index);
                }
            }
            json.close(']');
        }
    }

    /** Reads a map; if a key occurs twice, its last entry counts, as in Avro's reader. */
    static final class OfMap extends AvroStep {
        private static final Object[] NONE = {};
        private static final MapData EMPTY_MAP = new ArrayBasedMapData(EMPTY, EMPTY);
        private static final int ENTRY = 2 * REFERENCE;

        private final AvroStep value;

        OfMap(AvroStep value) {
            this.value = value;
        }

        @Override
        Object read(BoundedDecoder in) {
            AvroKeys keys = new AvroKeys();
            Object[] values = NONE;
            long index = 0;
            for (int count = in.readItemCount(false); count != 0; count = in.readItemCount(false)) {
                in.charge(count * (long) ENTRY);
                keys.expect(count);
                values = roomFor(keys.size() + count, values);
                try {
                    for (; count > 0; count--, index++) {
                        int place = keys.place(in.readString());
                        values[place] = value.read(in);
                    }
                } catch (RuntimeException bad) {
                    throw BadRecord.of(bad).item(index);
                }
            }
            if (keys.size() == 0) {
                return EMPTY_MAP;
            }
            if (keys.size() < values.length) {
                values = Arrays.copyOf(values, keys.size());
            }
            return new ArrayBasedMapData(keys.array(), new GenericArrayData(values));
        }

        @Override
        void write(BoundedDecoder in, JsonText json) {
            json.open('{');
            AvroKeys keys = new AvroKeys();
            long index = 0;
            for (int count = in.readItemCount(false); count != 0; count = in.readItemCount(false)) {
                keys.expect(count);
                try {
                    for (; count > 0; count--, index++) {
                        UTF8String key = in.readString();
                        if (keys.place(key) < index) {
                            throw new BadRecord("a map has the same key twice"); // JSON would lose one of the values.
                        }
                        json.name(key.getBytes());
                        value.write(in, json);
                    }
                } catch (RuntimeException bad) {
                    throw BadRecord.of(bad).item(index);
                }
            }
            json.close('}');
        }
    }

    /** Reads a record inside a record of the same type, and returns it as JSON for a text column. */
    static final class AsJson extends AvroStep {
        private final AvroStep step;

        AsJson(AvroStep step) {
            this.step = step;
        }

        @Override
        Object read(BoundedDecoder in) {
            return in.json(step);
        }

        @Override
        void write(BoundedDecoder in, JsonText json) {
            step.write(in, json);
        }
    }

    /**
     * The distinct keys of one map, in the order of their first occurrence.
     *
     * <p>A {@code HashMap} would take more memory and be unsafe: a producer that knows the hash function of Spark's
     * text can write a map whose keys all have the same hash. Here the hash depends on secret numbers, and a key takes
     * only a few bytes besides its text.
     */
    static final class AvroKeys {
        /** Below this number of keys, comparing a key with all others is faster than hashing. */
        private static final int FEW = 8;

        private static final Object[] NONE = {};
        private static final long SECRET = new SecureRandom().nextLong();
        private static final long FACTOR = new SecureRandom().nextLong() | 1;

        private Object[] keys = NONE;
        private int size;
        /** A hash table of the keys' indexes, from 1; 0 is a free slot. Null while there are few keys. */
        private int[] table;

        int size() {
            return size;
        }

        void expect(int more) {
            keys = AvroStep.roomFor(size + more, keys);
        }

        /** Returns the index of a key; adds a new key. */
        int place(UTF8String key) {
            if (size < FEW) {
                for (int at = 0; at < size; at++) {
                    if (key.equals(keys[at])) {
                        return at;
                    }
                }
            } else {
                if (table == null || 2 * (size + 1) > table.length) {
                    rebuild();
                }
                int slot = slot(key);
                if (table[slot] != 0) {
                    return table[slot] - 1;
                }
                table[slot] = size + 1;
            }
            keys[size] = key;
            return size++;
        }

        /** Returns the slot of a key in the table; for a new key a free slot. */
        private int slot(UTF8String key) {
            int mask = table.length - 1;
            int slot = hash(key) & mask;
            while (table[slot] != 0 && !key.equals(keys[table[slot] - 1])) {
                slot = slot + 1 & mask;
            }
            return slot;
        }

        private void rebuild() {
            table = new int[Integer.highestOneBit(size) * 8];
            for (int at = 0; at < size; at++) {
                table[slot((UTF8String) keys[at])] = at + 1;
            }
        }

        private static int hash(UTF8String key) {
            Object base = key.getBaseObject();
            long at = key.getBaseOffset();
            long end = at + key.numBytes();
            long hash = mixed(key.numBytes());
            for (; at + Long.BYTES <= end; at += Long.BYTES) {
                hash = mixed(hash ^ Platform.getLong(base, at));
            }
            long rest = 0;
            for (; at < end; at++) {
                rest = rest << 8 | Platform.getByte(base, at) & 0xFF;
            }
            hash = mixed(hash ^ rest);
            return (int) (hash ^ hash >>> 32);
        }

        private static long mixed(long value) {
            long hidden = value ^ SECRET;
            return Math.multiplyHigh(hidden, FACTOR) ^ hidden * FACTOR;
        }

        GenericArrayData array() {
            return new GenericArrayData(size == keys.length ? keys : Arrays.copyOf(keys, size));
        }
    }
}
