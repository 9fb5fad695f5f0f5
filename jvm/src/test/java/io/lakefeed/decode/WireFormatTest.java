package io.lakefeed.decode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HexFormat;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class WireFormatTest {
    private static byte[] bytes(String hex) {
        return HexFormat.of().parseHex(hex);
    }

    @ParameterizedTest(name = "{0} has id {1}")
    @CsvSource({"0000000001, 1", "00000186a1ff, 100001", "007fffffff, 2147483647", "00ffffffff, -1", "0000000000, 0"})
    void theHeaderHasTheSchemaId(String hex, int id) {
        assertEquals(id, RecordReader.WireFormat.schemaId(bytes(hex)));
    }

    @ParameterizedTest(name = "{0}: {1}")
    @CsvSource({"0100000001, wrong magic byte 1", "ff00000001, wrong magic byte 255", "00, truncated: 1 bytes",
        "00000001, truncated: 4 bytes", "7b, wrong magic byte 123"})
    void bytesWithoutAHeaderAreRefused(String hex, String reason) {
        BadRecord bad = assertThrows(BadRecord.class, () -> RecordReader.WireFormat.schemaId(bytes(hex)));
        assertTrue(bad.getMessage().startsWith(reason), bad.getMessage());
    }

    @ParameterizedTest(name = "{0}: {1}")
    @CsvSource({"000000000141, true", "0000000001, false", "000000000041, false", "00ffffffff41, false", "7b0000000141, false",
        "00, false"})
    void anUnexpectedHeaderIsRecognised(String hex, boolean recognised) {
        assertEquals(recognised, !RecordReader.WireFormat.described(bytes(hex)).isEmpty());
    }
}
