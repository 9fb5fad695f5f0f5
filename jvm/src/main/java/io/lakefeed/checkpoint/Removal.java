package io.lakefeed.checkpoint;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import software.amazon.awssdk.services.s3.model.BucketVersioningStatus;
import software.amazon.awssdk.services.s3.model.DeleteObjectsRequest;
import software.amazon.awssdk.services.s3.model.DeleteObjectsResponse;
import software.amazon.awssdk.services.s3.model.ListObjectVersionsRequest;
import software.amazon.awssdk.services.s3.model.ListObjectVersionsResponse;
import software.amazon.awssdk.services.s3.model.ObjectIdentifier;
import software.amazon.awssdk.services.s3.model.S3Exception;

/** Removes objects from a bucket with their older versions and delete markers. */
final class Removal {
    private static final Logger LOG = LoggerFactory.getLogger(Removal.class);

    private final Bucket bucket;
    private final boolean deletesTogether;
    private Boolean versioned;

    /** @param deletesTogether whether the store knows DeleteObjects */
    Removal(Bucket bucket, boolean deletesTogether) {
        this.bucket = bucket;
        this.deletesTogether = deletesTogether;
    }

    /** Removes an object that {@link Bucket#putIfAbsent} has just written. */
    void removeNew(String key, String version) throws IOException {
        if (version == null) {
            // Without a version, versioning is off or suspended: a DELETE would leave a marker if it is suspended.
            remove(List.of(key));
        } else {
            delete(identifier(key, version));
        }
    }

    /** Removes these objects, on a versioned bucket with all their versions: no older one reappears. */
    void remove(Collection<String> keys) throws IOException {
        if (!versioned()) {
            delete(keys.stream().map(key -> identifier(key, null)).toList());
            return;
        }
        Set<String> required = new HashSet<>(keys);
        Map<String, List<String>> directories = new HashMap<>();
        keys.forEach(key -> directories
                .computeIfAbsent(key.substring(0, key.lastIndexOf('/') + 1), each -> new ArrayList<>())
                .add(key));
        List<ObjectIdentifier> found = new ArrayList<>();
        for (List<String> together : directories.values()) {
            found.addAll(versions(commonPrefix(together), required));
        }
        delete(found);
    }

    /** Removes every object whose key begins with {@code prefix}, which ends with a slash. */
    void removeAll(String prefix) throws IOException {
        if (versioned()) {
            delete(versions(prefix, null));
        } else {
            delete(bucket.list(prefix, null).objects().stream()
                    .map(item -> identifier(item.key(), null))
                    .toList());
        }
    }

    /**
     * Returns whether objects have versions, including those from before versioning was suspended. Asks the store once.
     */
    private synchronized boolean versioned() throws IOException {
        if (versioned == null) {
            try {
                BucketVersioningStatus status = bucket.retry(
                                "read the versioning of",
                                bucket.name(),
                                () -> bucket.client().getBucketVersioning(request -> request.bucket(bucket.name())))
                        .status();
                versioned = status == BucketVersioningStatus.ENABLED || status == BucketVersioningStatus.SUSPENDED;
            } catch (IOException refused) {
                if (!(refused.getCause() instanceof S3Exception answer) || answer.statusCode() >= 500
                        && answer.statusCode() != 501) {
                    throw refused;
                }
                LOG.warn("Bucket {} does not report whether it is versioned (status {}): allow s3:GetBucketVersioning, or"
                        + " deleted checkpoint entries may leave delete markers.", bucket.name(), answer.statusCode());
                versioned = false;
            }
        }
        return versioned;
    }

    /** Lists all versions and delete markers below a prefix, of all keys or of the given ones. */
    private List<ObjectIdentifier> versions(String prefix, Set<String> required) throws IOException {
        List<ObjectIdentifier> found = new ArrayList<>();
        String nextKey = null;
        String nextVersion = null;
        do {
            ListObjectVersionsRequest request = ListObjectVersionsRequest.builder()
                    .bucket(bucket.name())
                    .prefix(prefix)
                    .maxKeys(Bucket.PAGE)
                    .keyMarker(nextKey)
                    .versionIdMarker(nextVersion)
                    .build();
            ListObjectVersionsResponse page =
                    bucket.retry("list versions of", prefix, () -> bucket.client().listObjectVersions(request));
            page.versions().forEach(each -> found.add(identifier(each.key(), each.versionId())));
            page.deleteMarkers().forEach(each -> found.add(identifier(each.key(), each.versionId())));
            boolean more = Boolean.TRUE.equals(page.isTruncated());
            nextKey = more ? page.nextKeyMarker() : null;
            nextVersion = more ? page.nextVersionIdMarker() : null;
        } while (nextKey != null);
        if (required != null) {
            found.removeIf(each -> !required.contains(each.key()));
        }
        return found;
    }

    private void delete(List<ObjectIdentifier> objects) throws IOException {
        int size = deletesTogether ? Bucket.PAGE : 1;
        for (int from = 0; from < objects.size(); from += size) {
            List<ObjectIdentifier> some = objects.subList(from, Math.min(objects.size(), from + size));
            if (some.size() == 1) {
                delete(some.get(0));
            } else {
                deleteTogether(some);
            }
        }
    }

    private void delete(ObjectIdentifier one) throws IOException {
        bucket.retry("delete", one.key(), () -> bucket.client().deleteObject(request ->
                request.bucket(bucket.name()).key(one.key()).versionId(one.versionId())));
    }

    private void deleteTogether(List<ObjectIdentifier> objects) throws IOException {
        DeleteObjectsRequest request = bucket.files()
                .getS3AInternals()
                .getStore()
                .getRequestFactory()
                .newBulkDeleteRequestBuilder(objects)
                .build();
        DeleteObjectsResponse answer = bucket.retry(
                "delete", objects.get(0).key() + " and others", () -> bucket.client().deleteObjects(request));
        if (!answer.errors().isEmpty()) {
            var first = answer.errors().get(0);
            throw new IOException("The store did not delete " + answer.errors().size() + " of " + objects.size()
                    + " checkpoint files in " + bucket + "; the first: " + first.key() + ": " + first.code() + " "
                    + first.message());
        }
    }

    private static ObjectIdentifier identifier(String key, String version) {
        return ObjectIdentifier.builder().key(key).versionId(version).build();
    }

    private static String commonPrefix(List<String> keys) {
        String prefix = keys.get(0);
        for (String key : keys) {
            while (!key.startsWith(prefix)) {
                prefix = prefix.substring(0, prefix.length() - 1);
            }
        }
        return prefix;
    }
}
