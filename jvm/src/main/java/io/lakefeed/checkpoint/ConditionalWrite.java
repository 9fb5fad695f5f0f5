package io.lakefeed.checkpoint;

import java.io.IOException;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.Options.CreateFileOptionKeys;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.AWSUnsupportedFeatureException;
import org.apache.hadoop.fs.s3a.Constants;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import software.amazon.awssdk.awscore.exception.AwsServiceException;

/** Writes an object with one PUT through S3A, and interprets its failures. */
final class ConditionalWrite {
    /** Key of the user metadata that identifies the writer of an object. */
    static final String WRITE_ID = "lakefeed-write";

    private ConditionalWrite() {}

    /**
     * Creates a stream whose {@code close} is the PUT; it sends nothing before.
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

    /** Returns whether the object exists (412) or another write is in progress (409). */
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

    /** Returns whether the store reports that it does not support conditional writes. */
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
