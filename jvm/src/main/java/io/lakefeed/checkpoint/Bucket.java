package io.lakefeed.checkpoint;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.Constants;
import org.apache.hadoop.fs.s3a.Invoker;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.hadoop.fs.s3a.S3ARetryPolicy;
import org.apache.hadoop.fs.s3a.impl.PutObjectOptions;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.ListObjectsV2Request;
import software.amazon.awssdk.services.s3.model.ListObjectsV2Response;
import software.amazon.awssdk.services.s3.model.PutObjectRequest;
import software.amazon.awssdk.services.s3.model.S3Object;

/**
 * A bucket: requests that S3A makes in a costlier way, sent by S3A's client with its retries, and the known properties
 * of the store. There is one for each bucket and endpoint in a JVM.
 */
final class Bucket {
    private static final Map<String, Bucket> KNOWN = new ConcurrentHashMap<>();
    static final int PAGE = 1000;

    /** A listing of a directory: its objects and the directories below, by their keys. */
    record Listing(List<Item> objects, List<String> directories) {}

    /** An object in a listing. */
    record Item(String key, long length, long modified) {}

    private final Path root;
    private final Configuration conf;
    private final Invoker invoker;
    private final Removal removal;
    private final Deletions deletions;
    private final StoreProof proof = new StoreProof(this);
    private final FirstLooks looks = new FirstLooks(this);

    private Bucket(S3AFileSystem files, Configuration conf, Settings settings) {
        this.root = new Path(files.getUri());
        this.conf = conf;
        // The settings of the file system include those of the bucket.
        this.removal = new Removal(this, files.getConf().getBoolean(Constants.ENABLE_MULTI_DELETE, true));
        this.invoker = new Invoker(new S3ARetryPolicy(files.getConf()), Invoker.NO_OP);
        this.deletions = new Deletions(this, settings);
    }

    /** Returns the bucket of {@code path}; the first caller's settings decide about batches of deletes. */
    static Bucket of(Path path, Configuration conf, Settings settings) throws IOException {
        S3AFileSystem files = (S3AFileSystem) path.getFileSystem(conf);
        return KNOWN.computeIfAbsent(nameOf(files), name -> new Bucket(files, conf, settings));
    }

    /** Flushes the bucket of a file system, if this JVM has used it for checkpoints. */
    static void flush(FileSystem files) throws IOException {
        Bucket known = files instanceof S3AFileSystem s3a ? KNOWN.get(nameOf(s3a)) : null;
        if (known != null) {
            known.deletions.flush();
        }
    }

    private static String nameOf(S3AFileSystem files) {
        return files.getBucket() + " at " + files.getConf().getTrimmed(Constants.ENDPOINT, "");
    }

    /** Flushes every bucket, even if one of them cannot be reached. */
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

    /** Looks the file system up each time: after all were closed, Hadoop creates another. */
    S3AFileSystem files() throws IOException {
        return (S3AFileSystem) root.getFileSystem(conf);
    }

    Deletions deletions() {
        return deletions;
    }

    Removal removal() {
        return removal;
    }

    StoreProof proof() {
        return proof;
    }

    FirstLooks looks() {
        return looks;
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

    /** Lists the keys that begin with {@code prefix}, down to the next slash, with one request for each thousand. */
    Listing list(String prefix) throws IOException {
        return list(prefix, "/");
    }

    /**
     * Lists the names directly below a directory, with one request: of objects that are not deleted, with their length,
     * and of directories, with a length of -1.
     */
    Map<String, Long> names(Path directory) throws IOException {
        Listing listing = list(prefix(directory));
        Map<String, Long> names = new HashMap<>();
        listing.objects().stream()
                .filter(each -> !deletions.isDeleted(each.key()))
                .forEach(each -> names.put(path(each.key()).getName(), each.length()));
        listing.directories().forEach(each -> names.put(path(each).getName(), -1L));
        return names;
    }

    /**
     * Lists all objects below a directory that are not deleted, with one request; empty if there are more than one
     * request shows.
     */
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

    /** Returns the user metadata of an object. */
    Map<String, String> metadata(Path path) throws IOException {
        return files().getS3AInternals().getObjectMetadata(path).metadata();
    }

    /** Writes a small object unless one exists. Returns its version, or null if the bucket keeps none. */
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

    /** Runs an action with S3A's retries. */
    <T> T retry(String action, String key, org.apache.hadoop.util.functional.CallableRaisingIOE<T> request)
            throws IOException {
        return invoker.retry(action, key, true, request);
    }

    @Override
    public String toString() {
        return root.toString();
    }
}
