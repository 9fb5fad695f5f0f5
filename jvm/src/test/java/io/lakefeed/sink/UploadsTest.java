package io.lakefeed.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
@SuppressWarnings("try") // Some try blocks do not use their variable, because they only open and close an Uploads.
class UploadsTest {
    private static final String FOLDER = "s3://lake/a/metadata/";
    private static final String OTHER = "s3://lake/b/metadata/";

    private final Queue<String> done = new ConcurrentLinkedQueue<>();

    @Test
    void onlyFilesInAnOpenFolderAreUploadedInTheBackground() throws IOException {
        assertFalse(Uploads.start(FOLDER + "m.avro", () -> done.add("m")));
        try (Uploads outer = Uploads.beside(FOLDER)) {
            try (Uploads inner = Uploads.beside(FOLDER)) {
                assertFalse(Uploads.start(OTHER + "m.avro", () -> done.add("m")));
            }
            assertTrue(Uploads.start(FOLDER + "m.avro", () -> done.add("m")));
            Uploads.await(FOLDER + "0.metadata.json");
        }
        assertFalse(Uploads.start(FOLDER + "m.avro", () -> done.add("m")));
        assertEquals(1, done.size());
    }

    @Test
    void uploadsRunInParallelAndTheCommitWaitsForThem() throws Exception {
        CountDownLatch both = new CountDownLatch(2);
        CountDownLatch open = new CountDownLatch(1);
        try (Uploads uploads = Uploads.beside(FOLDER)) {
            for (String file : new String[] {"manifest.avro", "list.avro"}) {
                Uploads.start(FOLDER + file, () -> {
                    both.countDown();
                    waitFor(open);
                    done.add(file);
                });
            }
            assertTrue(both.await(20, TimeUnit.SECONDS), "both have begun, and none has ended");
            CompletableFuture<Void> waiting = CompletableFuture.runAsync(() -> {
                try {
                    Uploads.await(FOLDER + "0.metadata.json");
                } catch (IOException failure) {
                    throw new IllegalStateException(failure);
                }
                done.add("table");
            });
            assertEquals(0, done.size());
            open.countDown();
            waiting.get(20, TimeUnit.SECONDS);
            assertEquals(3, done.size());
            assertEquals("table", done.stream().reduce((first, last) -> last).orElseThrow());
        }
    }

    @Test
    void aFailedUploadFailsOnlyTheCommitToItsFolder() throws IOException {
        IllegalStateException refused = new IllegalStateException("503 Slow Down");
        try (Uploads here = Uploads.beside(FOLDER);
                Uploads there = Uploads.beside(OTHER)) {
            Uploads.start(FOLDER + "manifest.avro", () -> {
                throw refused;
            });
            Uploads.start(OTHER + "manifest.avro", () -> done.add("other"));
            Uploads.await(OTHER + "0.metadata.json");
            assertSame(refused, assertThrows(RuntimeException.class, () -> Uploads.await(FOLDER + "0.metadata.json")));
            Uploads.settle(FOLDER + "manifest.avro");
            Uploads.await(FOLDER + "0.metadata.json");
        }
        assertEquals(1, done.size());
    }

    @Test
    void aFileIsDeletedOnlyWhenItsUploadHasEnded() {
        CountDownLatch open = new CountDownLatch(1);
        try (Uploads uploads = Uploads.beside(FOLDER)) {
            Uploads.start(FOLDER + "manifest.avro", () -> {
                waitFor(open);
                done.add("uploaded");
            });
            CompletableFuture<Void> deletion = CompletableFuture.runAsync(() -> {
                Uploads.settle(FOLDER + "manifest.avro");
                done.add("deleted");
            });
            open.countDown();
            deletion.join();
            assertEquals("uploaded", done.peek());
        }
    }

    @Test
    void closeWaitsForTheUploadsOfAFailedCommit() {
        CountDownLatch open = new CountDownLatch(1);
        CompletableFuture<Void> commit = CompletableFuture.runAsync(() -> {
            try (Uploads uploads = Uploads.beside(FOLDER)) {
                Uploads.start(FOLDER + "manifest.avro", () -> {
                    waitFor(open);
                    done.add("uploaded");
                });
            }
            done.add("ended");
        });
        open.countDown();
        commit.join();
        assertEquals("uploaded", done.peek());
    }

    private static void waitFor(CountDownLatch latch) {
        try {
            assertTrue(latch.await(20, TimeUnit.SECONDS));
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }
}
