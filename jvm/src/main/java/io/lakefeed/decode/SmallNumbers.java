package io.lakefeed.decode;

import java.nio.charset.StandardCharsets;
import org.apache.spark.unsafe.types.UTF8String;

/** Whole numbers as text; the small ones, which take one byte of a record, are shared. */
final class SmallNumbers {
    private static final UTF8String[] SHARED = new UTF8String[128];

    static {
        for (int number = 0; number < SHARED.length; number++) {
            SHARED[number] = UTF8String.fromString(Integer.toString(number));
        }
    }

    private SmallNumbers() {}

    static UTF8String text(int number) {
        return number >= 0 && number < SHARED.length
                ? SHARED[number]
                : UTF8String.fromBytes(Integer.toString(number).getBytes(StandardCharsets.ISO_8859_1));
    }
}
