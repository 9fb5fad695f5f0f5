package io.lakefeed.checkpoint;

import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Options.CreateFileOptionKeys;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.AWSUnsupportedFeatureException;
import org.apache.hadoop.fs.s3a.Constants;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import software.amazon.awssdk.awscore.exception.AwsServiceException;

/**
 * Writes a checkpoint file, which becomes visible as a whole at {@code close}, or never.
 *
 * <p>Exclusive files are written with {@code If-None-Match: *}. If the reply to a PUT is lost, the PUT's retry is
 * refused, although the first PUT has written the file. So after a refusal, the write id of the existing object shows
 * whether this writer has written it.
 */
final class EntryOutput extends SparkManager.Output {
    private static final Logger LOG = LoggerFactory.getLogger(EntryOutput.class);
    private static final int ATTEMPTS = 4;
    private static final long PAUSE_MILLIS = 100;

    interface Outcome {
        void written(long length, byte[] content);

        /** Called after a failure that does not show whether the file exists. */
        void uncertain();
    }

    private enum State { OPEN, WRITTEN, FAILED, CANCELLED }

    private final Bucket bucket;
    private final Path path;
    private final boolean exclusive;
    private final boolean conditional;
    private final Outcome outcome;
    private final String writeId;
    private final Copy copy;
    private State state = State.OPEN;
    private IOException failure;

    private EntryOutput(
            Bucket bucket, Path path, boolean exclusive, boolean conditional, String writeId, Copy copy, Outcome outcome) {
        super(copy);
        this.bucket = bucket;
        this.path = path;
        this.exclusive = exclusive;
        this.conditional = conditional;
        this.writeId = writeId;
        this.copy = copy;
        this.outcome = outcome;
    }

    /**
     * Starts a file; sends nothing yet.
     *
     * @param exclusive whether {@code close} fails if the file exists
     * @param conditional whether the store itself checks this; otherwise a request before the write checks it, which
     * does not stop a concurrent writer
     * @param keep the most bytes of a file whose content is also stored in memory
     */
    static EntryOutput begin(
            Bucket bucket, Path path, boolean exclusive, boolean conditional, int keep, Outcome outcome)
            throws IOException {
        String writeId = UUID.randomUUID().toString();
        FSDataOutputStream target = ConditionalWrite.create(bucket.files(), path, writeId, exclusive && conditional);
        return new EntryOutput(bucket, path, exclusive, conditional, writeId, new Copy(target, keep), outcome);
    }

    @Override
    public synchronized void close() throws IOException {
        if (state == State.FAILED) {
            throw failure;
        }
        if (state != State.OPEN) {
            return;
        }
        try {
            commit();
            state = State.WRITTEN;
            outcome.written(copy.length, copy.content());
        } catch (IOException | RuntimeException failed) {
            failure = failed instanceof IOException io ? io : new IOException("Writing " + path + " failed", failed);
            state = State.FAILED;
            outcome.uncertain();
            throw failure;
        }
    }

    @Override
    public synchronized void cancel() {
        if (state != State.OPEN) {
            return;
        }
        state = State.CANCELLED;
        abort(copy.target);
    }

    private void commit() throws IOException {
        bucket.deletions.revive(Bucket.key(path), !exclusive);
        if (exclusive && !conditional && owner() != null) {
            abort(copy.target);
            throw exists(null);
        }
        FSDataOutputStream target = copy.target;
        for (int attempt = 1; ; attempt++) {
            try {
                put(target);
                return;
            } catch (IOException failed) {
                if (!exclusive || !ConditionalWrite.isConflict(failed)) {
                    throw failed;
                }
                String owner = owner();
                if (writeId.equals(owner)) {
                    LOG.info("{} was written, though its reply was lost.", path);
                    return;
                }
                if (owner != null) {
                    throw exists(failed);
                }
                // No object exists: the other writer's PUT has failed, or it has deleted its object. Try again.
                if (attempt == ATTEMPTS || copy.content() == null) {
                    throw failed;
                }
            }
            pause(attempt);
            target = ConditionalWrite.create(bucket.files(), path, writeId, conditional);
            target.write(copy.content());
        }
    }

    private void put(FSDataOutputStream target) throws IOException {
        target.close();
        // An interrupt ends S3A's wait for the upload, which may still succeed.
        if (Thread.currentThread().isInterrupted()) {
            throw new InterruptedIOException("interrupted while writing " + path + "; it may exist or not");
        }
    }

    /** Returns the write id of the object; empty for an object without a write id, null if there is no object. */
    private String owner() throws IOException {
        try {
            Map<String, String> metadata = bucket.metadata(path);
            return metadata.entrySet().stream()
                    .filter(each -> each.getKey().equalsIgnoreCase(ConditionalWrite.WRITE_ID))
                    .map(Map.Entry::getValue)
                    .findFirst()
                    .orElse("");
        } catch (FileNotFoundException absent) {
            return null;
        }
    }

    private FileAlreadyExistsException exists(IOException cause) {
        var refused = new FileAlreadyExistsException(path + " exists: another query has written it");
        refused.initCause(cause);
        return refused;
    }

    private static void pause(int attempt) throws InterruptedIOException {
        try {
            Thread.sleep(PAUSE_MILLIS << attempt);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted between two attempts to write");
        }
    }

    private void abort(FSDataOutputStream target) {
        IOException left = target.abort().anyCleanupException();
        if (left != null) {
            LOG.warn("An unfinished upload of {} may be left in the store: {}", path, left.toString());
        }
    }

    private static final class Copy extends OutputStream {
        private final FSDataOutputStream target;
        private final int limit;
        private ByteArrayOutputStream kept = new ByteArrayOutputStream();
        private long length;

        Copy(FSDataOutputStream target, int limit) {
            this.target = target;
            this.limit = limit;
        }

        byte[] content() {
            return kept == null ? null : kept.toByteArray();
        }

        @Override
        public void write(int single) throws IOException {
            write(new byte[] {(byte) single}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int offset, int count) throws IOException {
            target.write(bytes, offset, count);
            length += count;
            if (length > limit) {
                kept = null;
            } else {
                kept.write(bytes, offset, count);
            }
        }

        @Override
        public void flush() throws IOException {
            target.flush();
        }
    }

    /** Writes an object with one PUT through S3A; its errors tell apart refused PUTs and PUTs with unknown results. */
    static final class ConditionalWrite {
        /** The key in an object's user metadata for the id of its write. */
        static final String WRITE_ID = "lakefeed-write";

        private ConditionalWrite() {}

        /**
         * Creates a stream whose {@code close} sends the PUT.
         *
         * @param exclusive whether the store refuses the PUT if the object exists
         */
        static FSDataOutputStream create(S3AFileSystem files, Path path, String writeId, boolean exclusive)
                throws IOException {
            FSDataOutputStreamBuilder<?, ?> builder = files.createFile(path).overwrite(!exclusive);
            builder.must(Constants.FS_S3A_CREATE_PERFORMANCE, true);
            builder.opt(Constants.FS_S3A_CREATE_HEADER + "." + WRITE_ID, writeId);
            if (exclusive) {
                builder.must(CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE, true);
            }
            return builder.build();
        }

        /** Returns whether the store refused the PUT because the object exists (412) or is being written (409). */
        static boolean isConflict(Throwable failure) {
            for (Throwable each = failure; each != null; each = each.getCause()) {
                if (each instanceof RemoteFileChangedException) {
                    return true;
                }
                if (each instanceof AwsServiceException answer) {
                    return answer.statusCode() == 412 || answer.statusCode() == 409;
                }
            }
            return false;
        }

        /** Returns whether the store does not support conditional writes. */
        static boolean isNotSupported(Throwable failure) {
            for (Throwable each = failure; each != null; each = each.getCause()) {
                if (each instanceof AWSUnsupportedFeatureException
                        || each instanceof AwsServiceException answer && answer.statusCode() == 501) {
                    return true;
                }
            }
            return false;
        }
    }
}
