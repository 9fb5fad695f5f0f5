package io.lakefeed.decode;

import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.expressions.UnsafeArrayData;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.Platform;

/** The steps for values that a row stores without an object: booleans, numbers, dates and timestamps. */
final class AvroNumbers {
    private AvroNumbers() {}

    /** Reads a number that has {@code bytes} bytes in Spark's rows. */
    private abstract static class Fixed extends AvroStep {
        private static final byte[] NONE = {};
        private final DataType type;
        private final int bytes;

        Fixed(DataType type, int bytes) {
            this.type = type;
            this.bytes = bytes;
        }

        @Override
        abstract void read(BoundedDecoder in, DecodedRow row, int field);

        /** Reads a value into {@code items}; {@code offset} is an offset of Spark's {@link Platform}. */
        abstract void read(BoundedDecoder in, byte[] items, long offset);

        @Override
        final ArrayData readItems(BoundedDecoder in, boolean free) {
            byte[] items = NONE;
            int size = 0;
            for (int count = in.readItemCount(free); count != 0; count = in.readItemCount(free)) {
                in.charge((long) count * bytes);
                items = roomFor(size + count, items, bytes);
                try {
                    for (int until = size + count; size < until; size++) {
                        read(in, items, Platform.BYTE_ARRAY_OFFSET + (long) size * bytes);
                    }
                } catch (RuntimeException bad) {
                    throw BadRecord.of(bad).item(size);
                }
            }
            return size == 0 ? EMPTY : UnsafeArrayData.fromPrimitiveArray(items, Platform.BYTE_ARRAY_OFFSET, size, bytes);
        }

        @Override
        final void write(BoundedDecoder in, JsonText json) {
            json.value(read(in), type);
        }
    }

    static final class OfBoolean extends Fixed {
        OfBoolean(DataType type) {
            super(type, 1);
        }

        @Override
        Object read(BoundedDecoder in) {
            return in.readBoolean();
        }

        @Override
        void read(BoundedDecoder in, DecodedRow row, int field) {
            row.put(field, in.readBoolean() ? 1L : 0L);
        }

        @Override
        void read(BoundedDecoder in, byte[] items, long offset) {
            Platform.putBoolean(items, offset, in.readBoolean());
        }
    }

    static final class OfInt extends Fixed {
        OfInt(DataType type) {
            super(type, 4);
        }

        @Override
        byte common() {
            return INT;
        }

        @Override
        Object read(BoundedDecoder in) {
            return in.readInt();
        }

        @Override
        void read(BoundedDecoder in, DecodedRow row, int field) {
            row.put(field, (long) in.readInt());
        }

        @Override
        void read(BoundedDecoder in, byte[] items, long offset) {
            Platform.putInt(items, offset, in.readInt());
        }
    }

    /** Reads a long or an int as a long, and multiplies it by a constant. */
    static final class OfLong extends Fixed {
        private final boolean fromInt;
        private final long factor;

        OfLong(DataType type, Schema.Type writer, long factor) {
            super(type, 8);
            this.fromInt = writer == Schema.Type.INT;
            this.factor = factor;
        }

        @Override
        byte common() {
            return fromInt || factor != 1 ? OTHER : LONG;
        }

        private long next(BoundedDecoder in) {
            long value = fromInt ? in.readInt() : in.readLong();
            if (factor == 1) {
                return value;
            }
            long product = value * factor;
            if (Math.multiplyHigh(value, factor) != product >> 63) {
                throw new BadRecord("a timestamp is out of range before byte " + in.position());
            }
            return product;
        }

        @Override
        Object read(BoundedDecoder in) {
            return next(in);
        }

        @Override
        void read(BoundedDecoder in, DecodedRow row, int field) {
            row.put(field, next(in));
        }

        @Override
        void read(BoundedDecoder in, byte[] items, long offset) {
            Platform.putLong(items, offset, next(in));
        }
    }

    static final class OfFloat extends Fixed {
        private final Schema.Type writer;

        OfFloat(DataType type, Schema.Type writer) {
            super(type, 4);
            this.writer = writer;
        }

        private float next(BoundedDecoder in) {
            return switch (writer) {
                case INT -> in.readInt();
                case LONG -> in.readLong();
                default -> in.readFloat();
            };
        }

        @Override
        Object read(BoundedDecoder in) {
            return next(in);
        }

        @Override
        void read(BoundedDecoder in, DecodedRow row, int field) {
            row.put(field, next(in));
        }

        @Override
        void read(BoundedDecoder in, byte[] items, long offset) {
            Platform.putFloat(items, offset, next(in));
        }
    }

    static final class OfDouble extends Fixed {
        private final Schema.Type writer;

        OfDouble(DataType type, Schema.Type writer) {
            super(type, 8);
            this.writer = writer;
        }

        @Override
        byte common() {
            return writer == Schema.Type.DOUBLE ? DOUBLE : OTHER;
        }

        private double next(BoundedDecoder in) {
            return switch (writer) {
                case DOUBLE -> in.readDouble();
                case INT -> in.readInt();
                case LONG -> in.readLong();
                default -> in.readFloat();
            };
        }

        @Override
        Object read(BoundedDecoder in) {
            return next(in);
        }

        @Override
        void read(BoundedDecoder in, DecodedRow row, int field) {
            row.put(field, next(in));
        }

        @Override
        void read(BoundedDecoder in, byte[] items, long offset) {
            Platform.putDouble(items, offset, next(in));
        }
    }
}
