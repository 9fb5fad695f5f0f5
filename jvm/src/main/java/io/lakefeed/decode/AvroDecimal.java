package io.lakefeed.decode;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.util.Arrays;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;

/**
 * Reads a decimal from the two's complement of its unscaled value, highest byte first. The number stays the same in the
 * reader's scale, or is an error: rounding would change it.
 *
 * <p>Its cost depends neither on the writer's scale nor on the length of the number: more than {@value #MOST_BYTES}
 * bytes are refused.
 */
final class AvroDecimal {
    /** More than 2,400 digits: enough for every number that fits into 38 digits after a realistic change of scale. */
    private static final int MOST_BYTES = 1_024;
    /** The memory of a number that is no long, including intermediate objects. */
    private static final int LARGE = 320;
    /** The number of digits that always fit into a long. */
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

    /** Returns the number in {@code bytes}; charges a large one to {@code in}. */
    Decimal of(byte[] bytes, BoundedDecoder in) {
        if (bytes.length == 0) {
            throw new BadRecord("a decimal of 0 bytes");
        }
        int first = 0;
        // Leading bytes that repeat the sign add nothing.
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

    /** Returns the number with this unscaled value; charges a large one to {@code in}. */
    Decimal of(long unscaled, BoundedDecoder in) {
        int more = type.scale() - writtenScale;
        if (unscaled == 0) {
            return decimal(0);
        }
        if (more == 0) {
            return decimal(unscaled);
        }
        if (more < 0) {
            // A long has 19 digits, so only 0 ends with more zeros than that.
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
        // A zero at the end takes more than three bits. Without this check, 10 to the power of the scale would take
        // minutes.
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
