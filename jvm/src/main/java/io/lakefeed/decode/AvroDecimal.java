package io.lakefeed.decode;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.util.Arrays;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;

/**
 * A decimal out of the two's complement of its unscaled value, big end first. It is the same number in the reader's scale,
 * or an error: a number that had to be rounded would be another one.
 *
 * <p>Its cost does not depend on the writer's scale, and not on how many bytes the number has: more than
 * {@value #MOST_BYTES} are refused.
 */
final class AvroDecimal {
    /** More than 2,400 digits: enough for each number that fits into 38 after a change of scale that anybody uses. */
    private static final int MOST_BYTES = 1_024;
    /** The memory of a number that is no long, with what it takes to make it. */
    private static final int LARGE = 320;
    /** Digits that fit into a long whatever they are. */
    private static final int LONG_DIGITS = 18;

    private static final long[] POWERS = new long[LONG_DIGITS + 1];

    static {
        POWERS[0] = 1;
        for (int at = 1; at < POWERS.length; at++) {
            POWERS[at] = POWERS[at - 1] * 10;
        }
    }

    private final int writtenScale;
    private final DecimalType type;

    AvroDecimal(int writtenScale, DecimalType type) {
        this.writtenScale = writtenScale;
        this.type = type;
    }

    /** The number in {@code bytes}; a large one is charged to {@code in}. */
    Decimal of(byte[] bytes, BoundedDecoder in) {
        if (bytes.length == 0) {
            throw new BadRecord("a decimal of 0 bytes");
        }
        int first = 0;
        // Bytes that repeat the sign say nothing.
        while (first < bytes.length - 1 && bytes[first] == bytes[first + 1] >> 7 && (bytes[first] == 0 || bytes[first] == -1)) {
            first++;
        }
        int length = bytes.length - first;
        if (length > Long.BYTES) {
            return large(first == 0 ? bytes : Arrays.copyOfRange(bytes, first, bytes.length), in);
        }
        long unscaled = bytes[first];
        for (int at = first + 1; at < bytes.length; at++) {
            unscaled = unscaled << 8 | bytes[at] & 0xFF;
        }
        return of(unscaled, in);
    }

    /** The number with this unscaled value; a large one is charged to {@code in}. */
    Decimal of(long unscaled, BoundedDecoder in) {
        int more = type.scale() - writtenScale;
        if (unscaled == 0) {
            return decimal(0);
        }
        if (more == 0) {
            return decimal(unscaled);
        }
        if (more < 0) {
            // A long has 19 digits, so no number but 0 ends with more zeros than that.
            if (-more > LONG_DIGITS || unscaled % POWERS[-more] != 0) {
                throw inexact();
            }
            return decimal(unscaled / POWERS[-more]);
        }
        if (more <= LONG_DIGITS) {
            long product = unscaled * POWERS[more];
            if (Math.multiplyHigh(unscaled, POWERS[more]) == product >> 63) {
                return decimal(product);
            }
        }
        return large(BigInteger.valueOf(unscaled), in);
    }

    private Decimal decimal(long unscaled) {
        if (type.precision() <= LONG_DIGITS && (unscaled >= POWERS[type.precision()] || unscaled <= -POWERS[type.precision()])) {
            throw tooLarge();
        }
        return Decimal.apply(unscaled, type.precision(), type.scale());
    }

    private Decimal large(byte[] bytes, BoundedDecoder in) {
        if (bytes.length > MOST_BYTES) {
            throw new BadRecord("a decimal of more than " + MOST_BYTES + " bytes");
        }
        return large(new BigInteger(bytes), in);
    }

    private Decimal large(BigInteger unscaled, BoundedDecoder in) {
        in.charge(LARGE);
        // A zero at the end takes more than three bits. Without this, 10 to the power of the scale alone would take minutes.
        if (3L * (writtenScale - type.scale()) > unscaled.bitLength()) {
            throw inexact();
        }
        BigDecimal exact;
        try {
            exact = new BigDecimal(unscaled, writtenScale).setScale(type.scale(), RoundingMode.UNNECESSARY);
        } catch (ArithmeticException rounded) {
            throw inexact();
        }
        if (exact.precision() > type.precision()) {
            throw tooLarge();
        }
        return Decimal.apply(exact, type.precision(), type.scale());
    }

    private BadRecord inexact() {
        return new BadRecord("a decimal has more than the " + type.scale() + " digits after the point that its type has");
    }

    private BadRecord tooLarge() {
        return new BadRecord("a decimal has more digits than " + type.simpleString() + " holds");
    }
}
