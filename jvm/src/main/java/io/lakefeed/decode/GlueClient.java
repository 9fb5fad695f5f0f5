package io.lakefeed.decode;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.URI;
import java.net.http.HttpRequest;
import java.util.function.Predicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.AwsCredentials;
import software.amazon.awssdk.auth.credentials.AwsSessionCredentials;
import software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.http.ContentStreamProvider;
import software.amazon.awssdk.http.SdkHttpMethod;
import software.amazon.awssdk.http.SdkHttpRequest;
import software.amazon.awssdk.http.auth.aws.signer.AwsV4HttpSigner;

/**
 * Answers requests to a registry of Confluent's from AWS Glue's schema registry.
 *
 * <p>A subject is a schema of Glue. The id is the version's number in Glue, so ids are unique only within a subject. A
 * GUID is the version's id in Glue.
 */
final class GlueClient extends RegistryClient {
    private static final Pattern GUID = Pattern.compile("/schemas/guids/([^/]+)/ids");
    private static final Pattern ID = Pattern.compile("/schemas/ids/(\\d+)(/versions)?(\\?.*)?");
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    private final URI endpoint;
    private final String region;
    private final String registry;
    private final String schema;
    private final String keys;

    /**
     * Creates a client.
     *
     * @param place the region and the registry's name, with a slash between
     * @param keys the access key, the secret key and possibly a session token, each in a line; null for AWS's default
     * chain
     */
    GlueClient(String url, String place, String schema, String keys) {
        super(url, null);
        this.endpoint = URI.create(url);
        this.region = place.substring(0, place.indexOf('/'));
        this.registry = place.substring(place.indexOf('/') + 1);
        this.schema = schema;
        this.keys = keys;
    }

    @Override
    HttpRequest request(String path, String authorization) {
        ObjectNode body = NODES.objectNode();
        Matcher guid = GUID.matcher(path);
        Matcher id = ID.matcher(path);
        if (guid.matches()) {
            body.put("SchemaVersionId", guid.group(1));
        } else if (id.matches()) {
            body.putObject("SchemaId").put("RegistryName", registry).put("SchemaName", schema);
            body.putObject("SchemaVersionNumber").put("VersionNumber", Long.parseLong(id.group(1)));
        } else {
            throw new BadRecord("schemas of AWS Glue have no references");
        }
        SdkHttpRequest request = SdkHttpRequest.builder()
                .method(SdkHttpMethod.POST)
                .uri(endpoint)
                .putHeader("Content-Type", "application/x-amz-json-1.1")
                .putHeader("X-Amz-Target", "AWSGlue.GetSchemaVersion")
                .build();
        AwsCredentials credentials = credentials();
        SdkHttpRequest signed = AwsV4HttpSigner.create()
                .sign(each -> each.identity(credentials)
                        .request(request)
                        .payload(ContentStreamProvider.fromUtf8String(body.toString()))
                        .putProperty(AwsV4HttpSigner.SERVICE_SIGNING_NAME, "glue")
                        .putProperty(AwsV4HttpSigner.REGION_NAME, region))
                .request();
        HttpRequest.Builder sent = HttpRequest.newBuilder(endpoint)
                .POST(HttpRequest.BodyPublishers.ofString(body.toString()));
        signed.forEachHeader((name, values) -> {
            // Java's client sets these two headers itself.
            if (!name.equalsIgnoreCase("Host") && !name.equalsIgnoreCase("Content-Length")) {
                values.forEach(value -> sent.header(name, value));
            }
        });
        return sent.build();
    }

    private AwsCredentials credentials() {
        if (keys != null) {
            String[] parts = keys.split("\n");
            return parts.length > 2
                    ? AwsSessionCredentials.create(parts[0], parts[1], parts[2])
                    : AwsBasicCredentials.create(parts[0], parts[1]);
        }
        try (DefaultCredentialsProvider chain = DefaultCredentialsProvider.create()) {
            return chain.resolveCredentials();
        } catch (SdkException none) {
            throw new RegistryException("refuses the credentials", "AWS's default chain has no keys for " + endpoint);
        }
    }

    @Override
    JsonNode read(int status, JsonNode answer, String path, String missing, Predicate<JsonNode> usable) {
        JsonNode version = answer == null ? NODES.missingNode() : answer;
        if (status == 200 && version.path("SchemaDefinition").isTextual()) {
            return translated(version, path);
        }
        String type = version.path("__type").asText();
        if (type.contains("EntityNotFound") || type.contains("InvalidInput")) {
            throw new BadRecord(missing);
        }
        if (status == 401 || status == 403 || type.matches(".*(Access|Signature|Token|Client)[A-Za-z]*(Exception)?")) {
            throw new RegistryException("refuses the credentials", endpoint + " answered " + type);
        }
        throw new RegistryException(
                "gave no usable answer", endpoint + " answered with HTTP status " + status + " " + type
                        + "; is it the address of AWS Glue?");
    }

    private JsonNode translated(JsonNode version, String path) {
        if (path.endsWith("/versions")) {
            ObjectNode subject = NODES.objectNode().put("subject", schema);
            return NODES.arrayNode().add(subject);
        }
        if (GUID.matcher(path).matches()) {
            String arn = version.path("SchemaArn").asText();
            if (!arn.endsWith(":schema/" + registry + "/" + schema)) {
                throw new BadRecord("schema version " + version.path("SchemaVersionId").asText() + " belongs to "
                        + arn.substring(arn.indexOf(":schema/") + 1) + ", not to schema/" + registry + "/" + schema);
            }
            return NODES.arrayNode().add(NODES.objectNode().put("context", "").set("id", version.path("VersionNumber")));
        }
        return NODES.objectNode()
                .put("schema", version.path("SchemaDefinition").asText())
                .put("schemaType", version.path("DataFormat").asText());
    }
}
