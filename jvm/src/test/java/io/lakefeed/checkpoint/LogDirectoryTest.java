package io.lakefeed.checkpoint;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.EOFException;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import software.amazon.awssdk.services.s3.model.S3Exception;

class LogDirectoryTest {
    @ParameterizedTest(name = "{0}: {1}")
    @CsvSource({"s3a://b/cp/offsets, true", "s3a://b/cp/commits, true", "s3a://b/f/_spark_metadata, true",
        "s3a://b/cp/sources/0, true", "s3a://b/cp/state, false", "s3a://b/cp/sources, false", "s3a://b/cp, false"})
    void onlyDirectoriesOfSparksLogsAreLogs(String path, boolean log) {
        assertEquals(log, LogDirectory.isLog(new Path(path)));
    }

    @ParameterizedTest(name = "{0} is of batch {1}")
    @CsvSource({"17, 17", "0, 0", "9.compact, 9", "3.delta, 3", "12.snapshot.zip, 12", ".17.tmp, -1", "metadata, -1",
        "999999999999999999, 999999999999999999", "1000000000000000000, -1", "17x, -1", "'', -1", "-1, -1"})
    void aNameOfAnEntryBeginsWithItsBatch(String name, long batch) {
        assertEquals(batch, LogDirectory.batch(name));
    }

    @Nested
    class Contents {
        private final LogDirectory log = new LogDirectory(null, new Path("s3a://b/cp/offsets"), 10);

        @Test
        void theLeastRecentlyUsedContentIsDroppedIfTheBudgetIsExceeded() {
            log.keep("1", new byte[6]);
            log.keep("2", new byte[4]);
            assertNotNull(log.content("1"));
            log.keep("3", new byte[5]);
            assertNull(log.content("2"), "the least recently used content is dropped");
            assertNull(log.content("1"));
            assertNotNull(log.content("3"));
        }

        @Test
        void theContentOfAnEntryIsReplacedAndDropped() {
            log.keep("1", new byte[10]);
            log.keep("1", new byte[] {1});
            log.keep("2", new byte[9]);
            assertArrayEquals(new byte[] {1}, log.content("1"));
            log.keep("1", null);
            assertNull(log.content("1"));
            log.deleted("2");
            assertNull(log.content("2"));
        }

        @Test
        void contentThatExceedsTheBudgetIsNotKept() {
            log.keep("1", new byte[3]);
            log.keep("2", new byte[11]);
            assertNull(log.content("2"));
            assertNotNull(log.content("1"));
        }

        @Test
        void forgetDropsAllContent() {
            log.keep("1", new byte[10]);
            log.forget();
            assertNull(log.content("1"));
            log.keep("2", new byte[10]);
            assertNotNull(log.content("2"));
        }
    }

    @Nested
    class Entries {
        private final S3ACheckpoint.EntryInput input = new S3ACheckpoint.EntryInput(new byte[] {0, 1, 2, 3, 4});

        @Test
        void anEntryIsReadFromAPositionAfterSeek() throws EOFException {
            input.seek(3);
            assertEquals(3, input.getPos());
            assertEquals(3, input.read());
            input.seek(5);
            assertEquals(-1, input.read());
            assertThrows(EOFException.class, () -> input.seek(6));
            assertThrows(EOFException.class, () -> input.seek(-1));
        }

        @Test
        void anEntryIsReadAtAPositionWithoutSeek() throws IOException {
            byte[] buffer = new byte[4];
            assertEquals(2, input.read(3, buffer, 1, 3));
            assertArrayEquals(new byte[] {0, 3, 4, 0}, buffer);
            assertEquals(-1, input.read(5, buffer, 0, 1));
            assertEquals(0, input.read(9, buffer, 0, 0));
            input.readFully(1, buffer);
            assertArrayEquals(new byte[] {1, 2, 3, 4}, buffer);
            assertThrows(EOFException.class, () -> input.readFully(2, buffer));
            assertEquals(0, input.getPos(), "the position of the stream does not change");
        }
    }

    @Nested
    class Limits {
        private static Settings of(String key, String value) {
            Configuration conf = new Configuration(false);
            conf.set(key, value);
            return Settings.of(conf);
        }

        @Test
        void settingsHaveDefaults() {
            assertEquals(new Settings(false, 2, true, 4 << 20, 1000, 600_000), Settings.of(new Configuration(false)));
        }

        @Test
        void settingsAreReadFromTheConfiguration() {
            assertEquals(5_000, of(Settings.DELETE_AGE, "5s").deleteAgeMillis());
            assertEquals(0, of(Settings.CACHE_BYTES, "0").cacheBytes());
            assertTrue(of(Settings.ALLOW_UNCONDITIONAL_WRITES, "true").allowUnconditionalWrites());
        }

        @ParameterizedTest(name = "{0} = {1}")
        @CsvSource({"probe.writers, 1", "probe.writers, 65", "delete.batch, 0", "delete.batch, 1001", "cache.bytes, -1"})
        void settingsOutOfTheirRangeAreRefused(String key, String value) {
            IllegalArgumentException wrong =
                    assertThrows(IllegalArgumentException.class, () -> of(Settings.PREFIX + key, value));
            assertTrue(wrong.getMessage().contains(key + " is " + value), wrong.getMessage());
        }
    }

    @ParameterizedTest(name = "status {0}: conflict {1}, not supported {2}")
    @CsvSource({"412, true, false", "409, true, false", "501, false, true", "404, false, false", "503, false, false"})
    void theStatusOfAFailedConditionalWriteIsRecognised(int status, boolean conflict, boolean notSupported) {
        IOException failed = new IOException(S3Exception.builder().statusCode(status).message("no").build());
        assertEquals(conflict, EntryOutput.ConditionalWrite.isConflict(failed));
        assertEquals(notSupported, EntryOutput.ConditionalWrite.isNotSupported(failed));
        assertTrue(EntryOutput.ConditionalWrite.isConflict(new IOException(new RemoteFileChangedException("k", "PUT", "changed"))));
    }
}
