package io.lakefeed.decode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakefeed.protobuf.Malformed;
import org.junit.jupiter.api.Test;

class BadRecordTest {
    @Test
    void anErrorHasItsReasonAndNoStackTrace() {
        assertEquals("why", new BadRecord("why").getMessage());
        assertEquals(0, new BadRecord("why").getStackTrace().length);
    }

    @Test
    void thePathBeginsWithTheOutermostName() {
        assertEquals("a.b[3].c: why", new BadRecord("why").at("c").item(3).at("b").at("a").getMessage());
        assertEquals("[0][1]: why", new BadRecord("why").item(1).item(0).getMessage());
        assertEquals("a[0]: why", new BadRecord("why").item(0).at("a").getMessage());
    }

    @Test
    void aLongPathIsShortenedInTheMiddle() {
        assertEquals("16.15.14.13.12.11.10.9.8.7.6.5.4.3.2.1: why", path(16));
        assertEquals("17.16.15.14.13.12.11.10….8.7.6.5.4.3.2.1: why", path(17));
        assertEquals("1000.999.998.997.996.995.994.993….8.7.6.5.4.3.2.1: why", path(1000));
        assertEquals("9.8.7.6.5.4.3.2.1: why", path(9));
    }

    private static String path(int depth) {
        BadRecord bad = new BadRecord("why");
        for (int at = 1; at <= depth; at++) {
            bad.at(String.valueOf(at));
        }
        return bad.getMessage();
    }

    @Test
    void longNamesAreShortened() {
        String message = new BadRecord("why").at("n".repeat(500)).getMessage();
        assertEquals("n".repeat(100) + "…: why", message);
    }

    @Test
    void badRecordsAreReturnedAndRegistryFailuresAreThrown() {
        BadRecord bad = new BadRecord("why");
        assertSame(bad, BadRecord.of(bad));
        assertEquals("no field", BadRecord.of(new Malformed("no field")).getMessage());
        RegistryException outage = new RegistryException("does not answer", "x");
        assertSame(outage, assertThrows(RegistryException.class, () -> BadRecord.of(outage)));
    }

    @Test
    void theMessageOfAnUnexpectedErrorIsHidden() {
        String message = BadRecord.of(new IllegalStateException("a customer's name")).getMessage();
        assertFalse(message.contains("customer"), message);
        assertTrue(message.contains("defect"), message);
    }
}
