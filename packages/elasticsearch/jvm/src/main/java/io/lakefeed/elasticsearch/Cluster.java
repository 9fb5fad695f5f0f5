package io.lakefeed.elasticsearch;

import io.lakefeed.Secrets;
import io.lakefeed.http.WholeAnswer;
import java.io.IOException;
import java.io.Serializable;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;

/**
 * A cluster and its login.
 *
 * <p>The login is copied from {@link Secrets}, and reaches the executors only inside serialised tasks.
 */
public final class Cluster implements Serializable {
    private static final long serialVersionUID = 1L;
    /** The most time for a request, including its documents and the whole answer. */
    private static final Duration TIMEOUT = Duration.ofSeconds(30);

    /** The most bytes of an answer: a few hundred bytes for each of some thousand documents. */
    private static final int MOST_BYTES = 64 << 20;

    private final String[] urls;
    private final String authorization;
    private final String authority;

    private Cluster(List<String> urls, String authorization, String authority) {
        this.urls = urls.toArray(String[]::new);
        this.authorization = authorization;
        this.authority = authority;
    }

    /**
     * Creates a cluster.
     *
     * @param urls the URLs of the cluster's nodes, without a slash at their end
     * @param secret the name of a secret in {@link Secrets}, which has the header for the login; or null
     * @param authority the certificates (PEM) that have signed the nodes' certificates; null for Java's own
     */
    public static Cluster of(List<String> urls, String secret, String authority) {
        return new Cluster(urls, secret == null ? null : Secrets.get(secret), authority);
    }

    /**
     * Writes documents, and returns when the cluster has acknowledged all of them. If a task fails, Spark throws a
     * {@code SparkException} that contains the task's {@link BulkFailure}.
     *
     * @param documents id and JSON, both text; a document whose JSON is null is deleted
     * @param target the index, the version of the documents, and their feed
     * @return the number of documents
     */
    public long write(Dataset<Row> documents, BulkTarget target) {
        return documents.mapPartitions(new BulkTask(this, target), Encoders.LONG()).collectAsList().stream()
                .mapToLong(Long::longValue)
                .sum();
    }

    /**
     * Sends a request to one of the nodes.
     *
     * @param node any number; the same number always means the same node
     * @param body null for GET
     */
    HttpResponse<byte[]> ask(int node, String path, byte[] body) throws IOException, InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(urls[Math.floorMod(node, urls.length)] + path))
                .header("Content-Type", "application/x-ndjson");
        if (authorization != null) {
            request.header("Authorization", authorization);
        }
        if (body != null) {
            request.POST(BodyPublishers.ofByteArray(body));
        }
        return WholeAnswer.of(Clients.trusting(authority), request.build(), TIMEOUT, MOST_BYTES);
    }
}
