package io.lakefeed.s3;

import java.io.Serializable;
import java.util.Locale;

/**
 * The number of requests of one operation for one class of keys of one location.
 *
 * @param operation S3's name for the operation, such as PutObject
 * @param keyClass the purpose of the key
 * @param location {@code bucket/path} of the table or checkpoint; empty if there are too many locations to count them
 *     separately
 * @param requests the number of attempts, including retries
 * @param bytesOut the bytes of the requests' bodies
 * @param bytesIn the bytes of the answers' bodies, according to the answers' headers
 * @param errors the number of answers with a status of 400 or above, and of attempts without an answer
 */
public record RequestCount(
        String operation,
        KeyClass keyClass,
        String location,
        long requests,
        long bytesOut,
        long bytesIn,
        long errors)
        implements Serializable {

    boolean isBelow(String root) {
        return location.startsWith(root)
                && (location.length() == root.length() || location.charAt(root.length()) == '/');
    }

    String line() {
        return String.join(
                "\t",
                operation,
                keyClass.name().toLowerCase(Locale.ROOT),
                location,
                Long.toString(requests),
                Long.toString(bytesOut),
                Long.toString(bytesIn),
                Long.toString(errors));
    }
}
