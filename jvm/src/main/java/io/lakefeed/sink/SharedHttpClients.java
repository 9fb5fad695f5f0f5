package io.lakefeed.sink;

import java.util.Map;
import org.apache.iceberg.aws.AwsClientProperties;
import org.apache.iceberg.aws.s3.S3FileIOAwsClientFactory;
import org.apache.iceberg.aws.s3.S3FileIOProperties;
import software.amazon.awssdk.http.SdkHttpClient;
import software.amazon.awssdk.http.apache.ApacheHttpClient;
import software.amazon.awssdk.services.s3.S3AsyncClient;
import software.amazon.awssdk.services.s3.S3Client;

/**
 * Creates S3 clients for Iceberg that share one pool of connections in each JVM. Set {@code
 * s3.client-factory-impl=io.lakefeed.sink.SharedHttpClients}.
 *
 * <p>Iceberg 1.12 offers two HTTP clients. The JDK's client may send a body over a connection that the server has
 * closed, and then has to send it again: one PUT in ten if batches are a second or two apart. The other client requires
 * a newer AWS SDK than Hadoop's. This class uses S3A's client, which checks a connection before it sends. The pool
 * outlives a batch, so an executor's next task finds open connections.
 */
public final class SharedHttpClients implements S3FileIOAwsClientFactory {
    private static final long serialVersionUID = 1;

    private S3FileIOProperties s3 = new S3FileIOProperties();
    private AwsClientProperties aws = new AwsClientProperties();

    /** Provides the pool of connections, which is created with the first client, and which no client closes. */
    private static final class Pool {
        static final SdkHttpClient CLIENT = ApacheHttpClient.builder().maxConnections(100).build();
    }

    @Override
    public void initialize(Map<String, String> properties) {
        s3 = new S3FileIOProperties(properties);
        aws = new AwsClientProperties(properties);
    }

    @Override
    public S3Client s3() {
        return S3Client.builder()
                .httpClient(Pool.CLIENT)
                .applyMutation(aws::applyClientRegionConfiguration)
                .applyMutation(aws::applyLegacyMd5Plugin)
                .applyMutation(s3::applyEndpointConfigurations)
                .applyMutation(s3::applyServiceConfigurations)
                .applyMutation(builder -> s3.applyCredentialConfigurations(aws, builder))
                .applyMutation(s3::applySignerConfiguration)
                .applyMutation(s3::applyS3AccessGrantsConfigurations)
                .applyMutation(s3::applyUserAgentConfigurations)
                .applyMutation(s3::applyRetryConfigurations)
                .build();
    }

    @Override
    public S3AsyncClient s3Async() {
        return S3AsyncClient.builder()
                .applyMutation(aws::applyClientRegionConfiguration)
                .applyMutation(builder -> s3.applyCredentialConfigurations(aws, builder))
                .applyMutation(s3::applyEndpointConfigurations)
                .build();
    }
}
