package io.lakefeed.sink;

import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Uploads the metadata files of one commit beside each other: manifests, the list of manifests, and the table's
 * metadata file.
 *
 * <p>Iceberg writes one after the other, each a request to the store. None of them counts before the catalog names the
 * table's metadata file. So each upload may wait until just before that: the metadata file's own upload ends only when
 * all others in its folder have, and fails if one of them has.
 *
 * <p>Only files of folders within {@link #beside} are uploaded so; in tasks none is, because another JVM commits.
 */
public final class Uploads implements AutoCloseable {
    private static final ExecutorService THREADS = Executors.newCachedThreadPool(work -> {
        Thread thread = new Thread(work, "lakefeed-uploads");
        thread.setDaemon(true);
        return thread;
    });
    /** How many commits to each folder are in progress. */
    private static final Map<String, Integer> OPEN = new HashMap<>();

    private static final Map<String, Future<?>> RUNNING = new ConcurrentHashMap<>();

    private final String folder;

    /** Ends a file, which uploads it. */
    public interface Upload {
        /** Ends it; fails if the store refuses it. */
        void run() throws IOException;
    }

    private Uploads(String folder) {
        this.folder = folder;
    }

    /** Lets the uploads to the folder of a file run beside each other, until this is closed. */
    public static Uploads beside(String file) {
        String folder = folder(file);
        synchronized (OPEN) {
            OPEN.merge(folder, 1, Integer::sum);
        }
        return new Uploads(folder);
    }

    /** Waits for what is left: a commit that has failed leaves uploads behind, whose failures do not count any more. */
    @Override
    public void close() {
        synchronized (OPEN) {
            OPEN.computeIfPresent(folder, (name, count) -> count == 1 ? null : count - 1);
        }
        for (String file : running(folder)) {
            settle(file);
        }
    }

    /** Starts an upload in a thread of its own, if its folder is within {@link #beside}; otherwise returns false. */
    public static boolean start(String file, Upload upload) {
        synchronized (OPEN) {
            if (!OPEN.containsKey(folder(file))) {
                return false;
            }
        }
        RUNNING.put(file, THREADS.submit(() -> {
            upload.run();
            return null;
        }));
        return true;
    }

    /**
     * Waits for all uploads to the folder of a file.
     *
     * @throws IOException or a RuntimeException if one of them has failed
     */
    public static void await(String file) throws IOException {
        for (String each : running(folder(file))) {
            Future<?> upload = RUNNING.get(each);
            if (upload == null) {
                continue;
            }
            try {
                upload.get();
            } catch (ExecutionException failed) {
                rethrow(failed.getCause());
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw new IOException("interrupted while " + each + " was uploaded", interrupted);
            }
            RUNNING.remove(each, upload);
        }
    }

    private static void rethrow(Throwable cause) throws IOException {
        if (cause instanceof IOException failure) {
            throw failure;
        }
        if (cause instanceof RuntimeException failure) {
            throw failure;
        }
        throw new IOException(cause);
    }

    /** Waits for the upload of a file, whether it succeeds or not, so that it can be deleted. */
    static void settle(String file) {
        Future<?> upload = RUNNING.remove(file);
        if (upload == null) {
            return;
        }
        try {
            upload.get();
        } catch (ExecutionException failed) {
            // The commit that wrote it has said so.
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private static List<String> running(String folder) {
        return RUNNING.keySet().stream().filter(file -> folder(file).equals(folder)).toList();
    }

    private static String folder(String file) {
        return file.substring(0, file.lastIndexOf('/') + 1);
    }
}
