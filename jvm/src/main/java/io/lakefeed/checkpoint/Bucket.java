package io.lakefeed.checkpoint;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.Constants;
import org.apache.hadoop.fs.s3a.Invoker;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.hadoop.fs.s3a.S3ARetryPolicy;
import org.apache.hadoop.fs.s3a.impl.PutObjectOptions;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.BucketVersioningStatus;
import software.amazon.awssdk.services.s3.model.DeleteObjectsResponse;
import software.amazon.awssdk.services.s3.model.ListObjectVersionsRequest;
import software.amazon.awssdk.services.s3.model.ListObjectVersionsResponse;
import software.amazon.awssdk.services.s3.model.ListObjectsV2Request;
import software.amazon.awssdk.services.s3.model.ListObjectsV2Response;
import software.amazon.awssdk.services.s3.model.ObjectIdentifier;
import software.amazon.awssdk.services.s3.model.PutObjectRequest;
import software.amazon.awssdk.services.s3.model.S3Exception;

/**
 * A bucket as this JVM knows it: the requests that S3A has no frugal call for, sent by S3A's own client and with
 * its retries, and what was learnt once about the store. One for each bucket and endpoint in a JVM.
 */
final class Bucket {
    private static final Logger LOG = LoggerFactory.getLogger(Bucket.class);
    private static final Map<String, Bucket> KNOWN = new ConcurrentHashMap<>();
    private static final int PAGE = 1000;

    /** One page or more of a directory: the objects in it and the directories below, by their keys. */
    record Listing(List<Item> objects, List<String> directories) {}

    /** An object in a listing. */
    record Item(String key, long length, long modified) {}

    private final Path root;
    private final Configuration conf;
    private final Invoker invoker;
    private final boolean deletesTogether;
    private final Deletions deletions;
    private final StoreProof proof = new StoreProof(this);
    private final FirstLooks looks = new FirstLooks(this);
    private Boolean versioned;

    private Bucket(S3AFileSystem files, Configuration conf, Settings settings) {
        this.root = new Path(files.getUri());
        this.conf = conf;
        // The file system's own settings: those of the bucket are resolved in them.
        this.deletesTogether = files.getConf().getBoolean(Constants.ENABLE_MULTI_DELETE, true);
        this.invoker = new Invoker(new S3ARetryPolicy(files.getConf()), Invoker.NO_OP);
        this.deletions = new Deletions(this, settings);
    }

    /** The one for {@code path}; the first caller's settings decide about batches of deletes. */
    static Bucket of(Path path, Configuration conf, Settings settings) throws IOException {
        S3AFileSystem files = (S3AFileSystem) path.getFileSystem(conf);
        String endpoint = files.getConf().getTrimmed(Constants.ENDPOINT, "");
        return KNOWN.computeIfAbsent(
                files.getBucket() + " at " + endpoint, name -> new Bucket(files, conf, settings));
    }

    /** Flushes every bucket, also if one of them cannot be reached. */
    static void flushAll() throws IOException {
        IOException first = null;
        for (Bucket bucket : KNOWN.values()) {
            try {
                bucket.deletions.flush();
            } catch (IOException failed) {
                if (first == null) {
                    first = failed;
                } else {
                    first.addSuppressed(failed);
                }
            }
        }
        if (first != null) {
            throw first;
        }
    }

    /** Looked up each time: somebody may have closed all file systems in between, and Hadoop then makes another. */
    S3AFileSystem files() throws IOException {
        return (S3AFileSystem) root.getFileSystem(conf);
    }

    Deletions deletions() {
        return deletions;
    }

    StoreProof proof() {
        return proof;
    }

    FirstLooks looks() {
        return looks;
    }

    /** The key of an absolute path; empty for the bucket itself. */
    static String key(Path path) {
        String inside = path.toUri().getPath();
        return inside.startsWith("/") ? inside.substring(1) : inside;
    }

    /** The key under which the objects of a directory stand; empty for the bucket itself. */
    static String prefix(Path directory) {
        String key = key(directory);
        return key.isEmpty() || key.endsWith("/") ? key : key + "/";
    }

    Path path(String key) {
        return new Path(root, "/" + key);
    }

    /** What begins with {@code prefix}, down to the next slash: one request for each thousand. */
    Listing list(String prefix) throws IOException {
        return list(prefix, "/");
    }

    /** The names directly below a directory, of objects that are not deleted and of directories: one request. */
    Set<String> names(Path directory) throws IOException {
        Listing listing = list(prefix(directory));
        Set<String> names = new HashSet<>();
        listing.objects().stream()
                .filter(each -> !deletions.isDeleted(each.key()))
                .forEach(each -> names.add(path(each.key()).getName()));
        listing.directories().forEach(each -> names.add(path(each).getName()));
        return names;
    }

    private Listing list(String prefix, String delimiter) throws IOException {
        List<Item> objects = new ArrayList<>();
        List<String> directories = new ArrayList<>();
        String next = null;
        do {
            ListObjectsV2Request request = files().getS3AInternals()
                    .getStore()
                    .getRequestFactory()
                    .newListObjectsV2RequestBuilder(prefix, delimiter, PAGE)
                    .continuationToken(next)
                    .build();
            ListObjectsV2Response page = retry("list", prefix, () -> client().listObjectsV2(request));
            page.contents().forEach(object -> objects.add(
                    new Item(object.key(), object.size(), object.lastModified().toEpochMilli())));
            page.commonPrefixes().forEach(each -> directories.add(each.prefix()));
            next = Boolean.TRUE.equals(page.isTruncated()) ? page.nextContinuationToken() : null;
        } while (next != null);
        return new Listing(objects, directories);
    }

    /** The user metadata of an object. */
    Map<String, String> metadata(Path path) throws IOException {
        return files().getS3AInternals().getObjectMetadata(path).metadata();
    }

    /** Writes a small object if there is none; its version, or null if the bucket keeps none. */
    String putIfAbsent(String key, String content) throws IOException {
        PutObjectRequest request = files().getS3AInternals()
                .getStore()
                .getRequestFactory()
                .newPutObjectRequestBuilder(key, PutObjectOptions.defaultOptions(), content.length(), false)
                .ifNoneMatch("*")
                .build();
        return retry("write", key, () -> client().putObject(request, RequestBody.fromString(content)))
                .versionId();
    }

    /** Removes an object that {@link #putIfAbsent} has just written. */
    void removeNew(String key, String version) throws IOException {
        if (version == null) {
            // Either there are no versions, or they are suspended: a DELETE would leave a marker then.
            remove(List.of(key));
        } else {
            delete(identifier(key, version));
        }
    }

    /** Removes these objects, on a versioned bucket with all their versions: nothing older comes back. */
    void remove(Collection<String> keys) throws IOException {
        if (!versioned()) {
            delete(keys.stream().map(key -> identifier(key, null)).toList());
            return;
        }
        Set<String> wanted = new HashSet<>(keys);
        Map<String, List<String>> directories = new ConcurrentHashMap<>();
        keys.forEach(key -> directories
                .computeIfAbsent(key.substring(0, key.lastIndexOf('/') + 1), each -> new ArrayList<>())
                .add(key));
        List<ObjectIdentifier> found = new ArrayList<>();
        for (List<String> together : directories.values()) {
            found.addAll(versions(commonPrefix(together), wanted));
        }
        delete(found);
    }

    /** Removes everything whose key begins with {@code prefix}, which ends with a slash. */
    void removeAll(String prefix) throws IOException {
        if (versioned()) {
            delete(versions(prefix, null));
        } else {
            delete(list(prefix, null).objects().stream()
                    .map(item -> identifier(item.key(), null))
                    .toList());
        }
    }

    /** Whether objects have versions here, also such as were left when versioning was suspended. Asked once. */
    private synchronized boolean versioned() throws IOException {
        if (versioned == null) {
            try {
                BucketVersioningStatus status = retry(
                                "read the versioning of",
                                bucket(),
                                () -> client().getBucketVersioning(request -> request.bucket(bucket())))
                        .status();
                versioned = status == BucketVersioningStatus.ENABLED || status == BucketVersioningStatus.SUSPENDED;
            } catch (IOException refused) {
                if (!(refused.getCause() instanceof S3Exception answer) || answer.statusCode() >= 500
                        && answer.statusCode() != 501) {
                    throw refused;
                }
                LOG.warn("Bucket {} does not tell whether it is versioned (status {}): allow s3:GetBucketVersioning, or"
                        + " deleted checkpoint entries may leave delete markers.", bucket(), answer.statusCode());
                versioned = false;
            }
        }
        return versioned;
    }

    /** All versions and delete markers below a prefix, of all keys or of those wanted. */
    private List<ObjectIdentifier> versions(String prefix, Set<String> wanted) throws IOException {
        List<ObjectIdentifier> found = new ArrayList<>();
        String nextKey = null;
        String nextVersion = null;
        do {
            ListObjectVersionsRequest request = ListObjectVersionsRequest.builder()
                    .bucket(bucket())
                    .prefix(prefix)
                    .maxKeys(PAGE)
                    .keyMarker(nextKey)
                    .versionIdMarker(nextVersion)
                    .build();
            ListObjectVersionsResponse page =
                    retry("list versions of", prefix, () -> client().listObjectVersions(request));
            page.versions().forEach(each -> found.add(identifier(each.key(), each.versionId())));
            page.deleteMarkers().forEach(each -> found.add(identifier(each.key(), each.versionId())));
            boolean more = Boolean.TRUE.equals(page.isTruncated());
            nextKey = more ? page.nextKeyMarker() : null;
            nextVersion = more ? page.nextVersionIdMarker() : null;
        } while (nextKey != null);
        if (wanted != null) {
            found.removeIf(each -> !wanted.contains(each.key()));
        }
        return found;
    }

    private void delete(List<ObjectIdentifier> objects) throws IOException {
        int size = deletesTogether ? PAGE : 1;
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
        retry("delete", one.key(), () -> client().deleteObject(request ->
                request.bucket(bucket()).key(one.key()).versionId(one.versionId())));
    }

    private void deleteTogether(List<ObjectIdentifier> objects) throws IOException {
        DeleteObjectsResponse answer = retry("delete", objects.get(0).key() + " and others", () -> client().deleteObjects(
                files().getS3AInternals().getStore().getRequestFactory().newBulkDeleteRequestBuilder(objects).build()));
        if (!answer.errors().isEmpty()) {
            var first = answer.errors().get(0);
            throw new IOException("The store did not delete " + answer.errors().size() + " of " + objects.size()
                    + " checkpoint files in " + root + "; the first: " + first.key() + ": " + first.code() + " "
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

    private String bucket() {
        return root.toUri().getAuthority();
    }

    private S3Client client() throws IOException {
        return files().getS3AInternals().getAmazonS3Client("checkpoint");
    }

    private <T> T retry(String action, String key, org.apache.hadoop.util.functional.CallableRaisingIOE<T> request)
            throws IOException {
        return invoker.retry(action, key, true, request);
    }

    @Override
    public String toString() {
        return root.toString();
    }
}
