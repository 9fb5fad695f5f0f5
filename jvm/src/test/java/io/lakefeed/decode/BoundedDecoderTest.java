package io.lakefeed.decode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Arrays;
import java.util.Random;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;
import org.junit.jupiter.api.Test;

/** Tests that the decoder reads the bytes of Avro's own encoder. */
class BoundedDecoderTest {
    private interface Value {
        void write(BinaryEncoder out) throws IOException;
    }

    private static byte[] written(Value value) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        BinaryEncoder out = EncoderFactory.get().binaryEncoder(bytes, null);
        value.write(out);
        out.flush();
        return bytes.toByteArray();
    }

    private static BoundedDecoder over(byte[] bytes) {
        return BoundedDecoder.ofTrusted(bytes);
    }

    @Test
    void longsOfEveryLengthAreRead() throws IOException {
        Random random = new Random(7);
        for (int bits = 0; bits < 64; bits++) {
            for (long number : new long[] {1L << bits, (1L << bits) - 1, -(1L << bits), random.nextLong() >> bits}) {
                byte[] alone = written(out -> out.writeLong(number));
                assertEquals(number, over(alone).readLong());
                for (int padding : new int[] {0, 0x7F, 0x80, 0xFF}) {
                    byte[] more = Arrays.copyOf(alone, alone.length + 9);
                    Arrays.fill(more, alone.length, more.length, (byte) padding);
                    BoundedDecoder in = over(more);
                    assertEquals(number, in.readLong());
                    assertEquals(alone.length, in.position());
                }
            }
        }
    }

    @Test
    void truncatedAndOverlongLongsAreRefused() throws IOException {
        byte[] whole = written(out -> out.writeLong(Long.MIN_VALUE));
        for (int length = 0; length < whole.length; length++) {
            byte[] part = Arrays.copyOf(whole, length);
            assertThrows(BadRecord.class, () -> over(part).readLong());
        }
        byte[] endless = new byte[20];
        Arrays.fill(endless, (byte) 0x80);
        BadRecord bad = assertThrows(BadRecord.class, () -> over(endless).readLong());
        assertEquals("an int or long of more than 10 bytes at byte 0", bad.getMessage());
    }

    @Test
    void stringsOfOneCharacterAreRead() throws IOException {
        for (int code = 0; code < 0x180; code++) {
            String text = Character.toString(code);
            byte[] bytes = written(out -> out.writeString(text));
            BoundedDecoder in = over(bytes);
            assertEquals(text, in.readString().toString());
            assertEquals(0, in.remaining());
        }
        assertThrows(BadRecord.class, () -> over(new byte[] {2, (byte) 0x80}).readString());
    }
}
