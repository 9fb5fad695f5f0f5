package io.lakefeed.elasticsearch;

import io.lakefeed.tls.Trust;
import java.io.IOException;
import java.net.http.HttpClient;
import java.security.GeneralSecurityException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import javax.net.ssl.SSLContext;

/**
 * Has one HTTP client for each authority, which all tasks of a JVM share, because a client has connections and threads.
 */
final class Clients {
    private static final Map<String, HttpClient> MADE = new ConcurrentHashMap<>();

    private Clients() {}

    /**
     * Returns the client that trusts an authority.
     *
     * @param authority certificates (PEM); null for the authorities that Java trusts
     */
    static HttpClient trusting(String authority) {
        return MADE.computeIfAbsent(authority == null ? "" : authority, Clients::made);
    }

    private static HttpClient made(String authority) {
        HttpClient.Builder client = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .connectTimeout(Duration.ofSeconds(10));
        return (authority.isEmpty() ? client : client.sslContext(context(authority))).build();
    }

    private static SSLContext context(String authority) {
        try {
            return Trust.only(authority);
        } catch (GeneralSecurityException | IOException unusable) {
            throw new IllegalArgumentException(
                    "sink.elasticsearch.ca_file has no certificates that Java can read: use a file in PEM", unusable);
        }
    }
}
