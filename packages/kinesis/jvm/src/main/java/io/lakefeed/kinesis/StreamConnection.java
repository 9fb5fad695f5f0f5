package io.lakefeed.kinesis;

import io.lakefeed.Secrets;
import java.io.Serializable;
import java.net.URI;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.AwsCredentials;
import software.amazon.awssdk.auth.credentials.AwsSessionCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.core.SdkSystemSetting;
import software.amazon.awssdk.http.apache.ApacheHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.kinesis.KinesisClient;
import software.amazon.awssdk.services.kinesis.KinesisClientBuilder;

/**
 * The connection to a stream. A connection contains secrets, so it reaches executors only in serialised tasks, and
 * {@code toString} does not show them.
 *
 * @param stream the stream's name
 * @param region the region that requests are signed for
 * @param endpoint URL of the service; null for AWS itself
 * @param keys the {@code access key, secret key[, session token]}, one on each line; null for the AWS default chain
 */
record StreamConnection(String stream, String region, String endpoint, String keys) implements Serializable {
    private static final Map<StreamConnection, KinesisClient> CLIENTS = new ConcurrentHashMap<>();

    /** Reads the options {@code stream}, {@code region}, {@code endpoint} and {@code credentials}, a secret's name. */
    static StreamConnection of(Map<String, String> options) {
        String name = options.get("credentials");
        return new StreamConnection(
                options.get("stream"), options.get("region"), options.get("endpoint"), name == null ? null : Secrets.get(name));
    }

    /** Returns the client: a JVM has one client for each connection. */
    KinesisClient client() {
        return CLIENTS.computeIfAbsent(this, StreamConnection::connected);
    }

    private KinesisClient connected() {
        KinesisClientBuilder builder = KinesisClient.builder()
                .region(Region.of(region))
                .httpClientBuilder(ApacheHttpClient.builder().connectionTimeout(Duration.ofSeconds(5)))
                // Limit the whole request: a socket's timeout would apply to each read from the socket.
                .overrideConfiguration(call ->
                        call.apiCallAttemptTimeout(Duration.ofMinutes(1)).apiCallTimeout(Duration.ofMinutes(4)));
        if (endpoint != null) {
            // Switch CBOR off in this JVM: other services with Kinesis's API know only JSON. No other client of this
            // JVM uses CBOR.
            System.setProperty(SdkSystemSetting.CBOR_ENABLED.property(), "false");
            builder.endpointOverride(URI.create(endpoint));
        }
        if (keys != null) {
            String[] each = keys.split("\n", -1);
            AwsCredentials credentials = each.length > 2
                    ? AwsSessionCredentials.create(each[0], each[1], each[2])
                    : AwsBasicCredentials.create(each[0], each[1]);
            builder.credentialsProvider(StaticCredentialsProvider.create(credentials));
        }
        return builder.build();
    }

    @Override
    public String toString() {
        return "stream " + stream + " at " + (endpoint == null ? "AWS, region " + region : endpoint);
    }
}
