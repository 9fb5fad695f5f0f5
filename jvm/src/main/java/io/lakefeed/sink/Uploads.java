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
import org.apache.iceberg.relocated.com.google.common.util.concurrent.ThreadFactoryBuilder;

/**
 * Uploads the metadata files of one commit together: manifests, the manifest list, and the table's metadata file.
 *
 * <p>Iceberg would write the files one after the other, with a request each. No reader uses the files before the
 * catalog refers to the table's metadata file, so the uploads may overlap. {@link #await} waits for all of them just
 * before the catalog is changed, and fails if an upload has failed.
 *
 * <p>Only uploads between {@link #beside} and {@link #close} overlap. Uploads in tasks do not overlap, because another
 * JVM commits the tasks' files.
 */
public final class Uploads implements AutoCloseable {
    private static final ExecutorService THREADS = Executors.newCachedThreadPool(
            new ThreadFactoryBuilder().setDaemon(true).setNameFormat("lakefeed-uploads").build());
    private static final Map<String, Integer> OPEN = new HashMap<>();

    private static final Map<String, Future<?>> RUNNING = new ConcurrentHashMap<>();

    private final String folder;

    /** The upload of a file. */
    public interface Upload {
        /** Uploads the file; fails if the store refuses it. */
        void run() throws IOException;
    }

    private Uploads(String folder) {
        this.folder = folder;
    }

    /** Lets uploads to the folder of {@code file} overlap until the returned object is closed. */
    public static Uploads beside(String file) {
        String folder = folder(file);
        synchronized (OPEN) {
            OPEN.merge(folder, 1, Integer::sum);
        }
        return new Uploads(folder);
    }

    /** Waits for the uploads that a failed commit has left running; ignores their failures. */
    @Override
    public void close() {
        synchronized (OPEN) {
            OPEN.computeIfPresent(folder, (name, count) -> count == 1 ? null : count - 1);
        }
        for (String file : running(folder)) {
            settle(file);
        }
    }

    /** Starts an upload in a thread; returns false if {@link #beside} was not called for its folder. */
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
     * @throws IOException if an upload has failed; or a RuntimeException
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

    /** Waits until the upload of a file has succeeded or failed, so that the file can be deleted. */
    static void settle(String file) {
        Future<?> upload = RUNNING.remove(file);
        if (upload == null) {
            return;
        }
        try {
            upload.get();
        } catch (ExecutionException failed) {
            // The commit that has written the file has already reported this failure.
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
