package io.lakefeed.checkpoint;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
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
import software.amazon.awssdk.services.s3.model.DeleteObjectsRequest;
import software.amazon.awssdk.services.s3.model.DeleteObjectsResponse;
import software.amazon.awssdk.services.s3.model.ListObjectVersionsRequest;
import software.amazon.awssdk.services.s3.model.ListObjectVersionsResponse;
import software.amazon.awssdk.services.s3.model.ListObjectsV2Request;
import software.amazon.awssdk.services.s3.model.ListObjectsV2Response;
import software.amazon.awssdk.services.s3.model.ObjectIdentifier;
import software.amazon.awssdk.services.s3.model.PutObjectRequest;
import software.amazon.awssdk.services.s3.model.S3Exception;
import software.amazon.awssdk.services.s3.model.S3Object;

/**
 * Sends requests to one bucket with S3A's client and retries, where S3A's methods would send more requests. A JVM has
 * one object per bucket and endpoint.
 */
final class Bucket {
    private static final Map<String, Bucket> KNOWN = new ConcurrentHashMap<>();
    static final int PAGE = 1000;

    /** The objects in a directory, and the keys of the directories in it. */
    record Listing(List<Item> objects, List<String> directories) {}

    record Item(String key, long length, long modified) {}

    private final Path root;
    private final Configuration conf;
    private final Invoker invoker;
    final Removal removal;
    final Deletions deletions;
    final StoreProof proof = new StoreProof(this);
    final FirstLooks looks = new FirstLooks(this);

    private Bucket(S3AFileSystem files, Configuration conf, Settings settings) {
        this.root = new Path(files.getUri());
        this.conf = conf;
        // These settings include the settings of this bucket alone (fs.s3a.bucket.…), which `conf` does not apply.
        this.removal = new Removal(this, files.getConf().getBoolean(Constants.ENABLE_MULTI_DELETE, true));
        this.invoker = new Invoker(new S3ARetryPolicy(files.getConf()), Invoker.NO_OP);
        this.deletions = new Deletions(this, settings);
    }

    /** Returns the bucket of {@code path}; the settings of the first call decide how deletes are batched. */
    static Bucket of(Path path, Configuration conf, Settings settings) throws IOException {
        S3AFileSystem files = (S3AFileSystem) path.getFileSystem(conf);
        return KNOWN.computeIfAbsent(nameOf(files), name -> new Bucket(files, conf, settings));
    }

    static void flush(FileSystem files) throws IOException {
        Bucket known = files instanceof S3AFileSystem s3a ? KNOWN.get(nameOf(s3a)) : null;
        if (known != null) {
            known.deletions.flush();
        }
    }

    private static String nameOf(S3AFileSystem files) {
        return files.getBucket() + " at " + files.getConf().getTrimmed(Constants.ENDPOINT, "");
    }

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

    /** Returns Hadoop's current file system: Hadoop creates a new one after {@code FileSystem.closeAll}. */
    S3AFileSystem files() throws IOException {
        return (S3AFileSystem) root.getFileSystem(conf);
    }

    /** Returns the key of an absolute path; empty for the bucket itself. */
    static String key(Path path) {
        String inside = path.toUri().getPath();
        return inside.startsWith("/") ? inside.substring(1) : inside;
    }

    /** Returns the prefix of the keys in a directory; empty for the bucket itself. */
    static String prefix(Path directory) {
        String key = key(directory);
        return key.isEmpty() || key.endsWith("/") ? key : key + "/";
    }

    Path path(String key) {
        return new Path(root, "/" + key);
    }

    /** Lists the keys that begin with {@code prefix}, up to the next slash; sends a request for each 1,000 keys. */
    Listing list(String prefix) throws IOException {
        return list(prefix, "/");
    }

    /** Returns the names directly below a directory: files with their length, directories with -1. */
    Map<String, Long> names(Path directory) throws IOException {
        Listing listing = list(prefix(directory));
        Map<String, Long> names = new HashMap<>();
        listing.objects().stream()
                .filter(each -> !deletions.isDeleted(each.key()))
                .forEach(each -> names.put(path(each.key()).getName(), each.length()));
        listing.directories().forEach(each -> names.put(path(each).getName(), -1L));
        return names;
    }

    /** Lists the objects below a directory with one request; empty if the answer does not have all objects. */
    Optional<List<Item>> below(Path directory) throws IOException {
        ListObjectsV2Response page = page(prefix(directory), null, null);
        if (Boolean.TRUE.equals(page.isTruncated())) {
            return Optional.empty();
        }
        return Optional.of(page.contents().stream()
                .filter(each -> !deletions.isDeleted(each.key()))
                .map(Bucket::item)
                .toList());
    }

    private ListObjectsV2Response page(String prefix, String delimiter, String next) throws IOException {
        ListObjectsV2Request request = files().getS3AInternals()
                .getStore()
                .getRequestFactory()
                .newListObjectsV2RequestBuilder(prefix, delimiter, PAGE)
                .continuationToken(next)
                .build();
        return retry("list", prefix, () -> client().listObjectsV2(request));
    }

    private static Item item(S3Object object) {
        return new Item(object.key(), object.size(), object.lastModified().toEpochMilli());
    }

    Listing list(String prefix, String delimiter) throws IOException {
        List<Item> objects = new ArrayList<>();
        List<String> directories = new ArrayList<>();
        String next = null;
        do {
            ListObjectsV2Response page = page(prefix, delimiter, next);
            page.contents().forEach(object -> objects.add(item(object)));
            page.commonPrefixes().forEach(each -> directories.add(each.prefix()));
            next = Boolean.TRUE.equals(page.isTruncated()) ? page.nextContinuationToken() : null;
        } while (next != null);
        return new Listing(objects, directories);
    }

    Map<String, String> metadata(Path path) throws IOException {
        return files().getS3AInternals().getObjectMetadata(path).metadata();
    }

    /** Writes a small object if the key does not exist; returns its version, or null in a bucket without versions. */
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

    String name() {
        return root.toUri().getAuthority();
    }

    S3Client client() throws IOException {
        return files().getS3AInternals().getAmazonS3Client("checkpoint");
    }

    <T> T retry(String action, String key, org.apache.hadoop.util.functional.CallableRaisingIOE<T> request)
            throws IOException {
        return invoker.retry(action, key, true, request);
    }

    @Override
    public String toString() {
        return root.toString();
    }

    /** Removes objects from a bucket, including their older versions and delete markers. */
    static final class Removal {
        private static final Logger LOG = LoggerFactory.getLogger(Removal.class);

        private final Bucket bucket;
        private final boolean deletesTogether;
        private Boolean versioned;

        /** @param deletesTogether whether the store supports DeleteObjects */
        Removal(Bucket bucket, boolean deletesTogether) {
            this.bucket = bucket;
            this.deletesTogether = deletesTogether;
        }

        /** Removes an object that {@link #putIfAbsent} has just written, with its version. */
        void removeNew(String key, String version) throws IOException {
            if (version == null) {
                // Without versioning, delete the object alone. Where it is suspended, this would leave a delete marker.
                remove(List.of(key));
            } else {
                delete(identifier(key, version));
            }
        }

        /** Removes objects; in a versioned bucket, removes all their versions, so that no older one reappears. */
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

        void removeAll(String prefix) throws IOException {
            if (versioned()) {
                delete(versions(prefix, null));
            } else {
                delete(bucket.list(prefix, null).objects().stream()
                        .map(item -> identifier(item.key(), null))
                        .toList());
            }
        }

        /** Returns whether objects can have versions, because versioning is on, or was on before it was suspended. */
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

        /** Lists versions and delete markers of the {@code required} keys (null: all) below a prefix. */
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
}
