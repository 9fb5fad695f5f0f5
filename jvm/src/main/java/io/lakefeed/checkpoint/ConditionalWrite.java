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

/** S3A's way to write an object with one PUT, and what its failures mean. */
final class ConditionalWrite {
    /** The user metadata that tells who has written an object. */
    static final String WRITE_ID = "lakefeed-write";

    private ConditionalWrite() {}

    /**
     * A stream whose {@code close} is the PUT; nothing is asked of the store before.
     *
     * @param exclusive let the store refuse it if the object exists
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

    /** Whether the store says that the object exists (412), or that somebody writes it right now (409). */
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

    /** Whether the store does not know conditional writes at all, and says so. */
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
