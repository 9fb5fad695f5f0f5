package io.lakefeed.tls;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.Key;
import java.security.KeyStore;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Tests trust and certificates with connected sockets. Each test creates new certificates, because installed
 * authorities stay trusted.
 */
class TrustTest {
    private static final char[] PASSWORD = "changeit".toCharArray();

    @TempDir
    private Path folder;

    private final Properties before = (Properties) System.getProperties().clone();
    private SSLContext contextBefore;

    @BeforeEach
    void remember() throws GeneralSecurityException {
        contextBefore = SSLContext.getDefault();
    }

    @AfterEach
    void restore() {
        SSLContext.setDefault(contextBefore);
        System.setProperties(before);
    }

    /** A self-signed certificate and its key. */
    private record Own(KeyStore store) {
        String certificate() throws GeneralSecurityException {
            return pem("CERTIFICATE", store.getCertificate("own").getEncoded());
        }

        String key() throws GeneralSecurityException {
            Key key = store.getKey("own", PASSWORD);
            return pem("PRIVATE KEY", key.getEncoded());
        }

        private static String pem(String kind, byte[] content) {
            return "-----BEGIN " + kind + "-----\n" + Base64.getMimeEncoder().encodeToString(content) + "\n-----END "
                    + kind + "-----\n";
        }
    }

    private Own make(String name, String algorithm) throws Exception {
        Path file = folder.resolve(name + ".p12");
        String command = "keytool -genkeypair -alias own -keyalg " + algorithm + " -dname CN=" + name
                + " -ext san=dns:localhost -validity 1 -storetype PKCS12 -storepass changeit -keystore " + file;
        Path programs = Path.of(System.getProperty("java.home"), "bin");
        Process keytool = new ProcessBuilder((programs + "/" + command).split(" ")).redirectErrorStream(true).start();
        String output = new String(keytool.getInputStream().readAllBytes());
        assertEquals(0, keytool.waitFor(), output);
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream in = Files.newInputStream(file)) {
            store.load(in, PASSWORD);
        }
        return new Own(store);
    }

    /**
     * Connects a client to a server; returns the name in the client's certificate, or an empty text if the server
     * requests no certificate.
     */
    private static String connect(Own server, SSLContext client, boolean asks, Own accepted) throws Exception {
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(server.store(), PASSWORD);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), managersOf(accepted), null);
        InetAddress here = InetAddress.getByName("127.0.0.1");
        try (SSLServerSocket listener =
                (SSLServerSocket) context.getServerSocketFactory().createServerSocket(0, 1, here)) {
            listener.setNeedClientAuth(asks);
            CompletableFuture<String> accepting = CompletableFuture.supplyAsync(() -> {
                try (SSLSocket socket = (SSLSocket) listener.accept()) {
                    socket.startHandshake();
                    socket.getOutputStream().write(1);
                    return asks ? socket.getSession().getPeerPrincipal().getName() : "";
                } catch (IOException refused) {
                    return "refused";
                }
            });
            try (SSLSocket socket = (SSLSocket) client.getSocketFactory().createSocket(here, listener.getLocalPort())) {
                SSLParameters parameters = socket.getSSLParameters();
                parameters.setEndpointIdentificationAlgorithm("");
                socket.setSSLParameters(parameters);
                socket.startHandshake();
                assertEquals(1, socket.getInputStream().read());
            }
            return accepting.get(10, TimeUnit.SECONDS);
        }
    }

    private static TrustManager[] managersOf(Own accepted) throws Exception {
        if (accepted == null) {
            return null;
        }
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        store.setCertificateEntry("accepted", accepted.store().getCertificate("own"));
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(store);
        return managers.getTrustManagers();
    }

    @Test
    void anInstalledAuthorityStaysTrusted() throws Exception {
        Own first = make("first", "EC");
        Own second = make("second", "RSA");
        assertThrows(SSLException.class, () -> connect(first, SSLContext.getDefault(), false, null));
        Trust.install(first.certificate(), "", "");
        assertEquals("", connect(first, SSLContext.getDefault(), false, null));
        assertThrows(SSLException.class, () -> connect(second, SSLContext.getDefault(), false, null));
        Trust.install(second.certificate(), "", "");
        assertEquals("", connect(first, SSLContext.getDefault(), false, null));
        assertEquals("", connect(second, SSLContext.getDefault(), false, null));
    }

    @Test
    void clientsThatReadTheSystemPropertiesTrustTheAuthority() throws Exception {
        Own server = make("server", "EC");
        Trust.install(server.certificate(), "", "");
        KeyStore store = KeyStore.getInstance(System.getProperty("javax.net.ssl.trustStoreType"));
        try (InputStream in = Files.newInputStream(Path.of(System.getProperty("javax.net.ssl.trustStore")))) {
            store.load(in, System.getProperty("javax.net.ssl.trustStorePassword").toCharArray());
        }
        assertNotNull(store.getCertificateAlias(server.store().getCertificate("own")));
        // The trust store in the system property has Java's own authorities, but no key.
        assertTrue(store.size() > 10, () -> "only a few authorities");
        for (String alias : Collections.list(store.aliases())) {
            assertTrue(store.isCertificateEntry(alias), alias);
        }
    }

    @Test
    void aCertificateIsShownWithEachKindOfKey() throws Exception {
        Own server = make("server-that-asks", "EC");
        for (String algorithm : List.of("RSA", "EC", "Ed25519")) {
            Own own = make("feed-" + algorithm, algorithm);
            Trust.install(server.certificate(), own.certificate(), own.key());
            assertEquals("CN=feed-" + algorithm, connect(server, SSLContext.getDefault(), true, own));
            assertEquals("CN=feed-" + algorithm, connect(server, Trust.only(server.certificate()), true, own));
            assertEquals(List.of(server.certificate(), own.certificate(), own.key()), List.of(Trust.installed()));
        }
    }

    @Test
    void clientsThatReadTheSystemPropertiesShowTheCertificate() throws Exception {
        Own server = make("server-for-stores", "EC");
        for (String name : List.of("one", "another")) {
            Own own = make(name, "EC");
            Trust.install(server.certificate(), own.certificate(), own.key());
            Path file = Path.of(System.getProperty("javax.net.ssl.keyStore"));
            char[] password = System.getProperty("javax.net.ssl.keyStorePassword").toCharArray();
            KeyStore store = KeyStore.getInstance(System.getProperty("javax.net.ssl.keyStoreType"));
            try (InputStream in = Files.newInputStream(file)) {
                store.load(in, password);
            }
            KeyManagerFactory managers = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            managers.init(store, password);
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(managers.getKeyManagers(), managersOf(server), null);
            assertEquals("CN=" + name, connect(server, context, true, own));
            // The file of the trust store contains no key.
            KeyStore stored = KeyStore.getInstance("PKCS12");
            try (InputStream in = Files.newInputStream(file)) {
                stored.load(in, PASSWORD);
            }
            for (String alias : Collections.list(stored.aliases())) {
                assertTrue(stored.isCertificateEntry(alias), alias);
            }
        }
    }

    @Test
    void aContextOfGivenAuthoritiesTrustsOnlyTheseAuthorities() throws Exception {
        Own known = make("known", "EC");
        Own other = make("other", "EC");
        Trust.install(other.certificate(), "", "");
        SSLContext only = Trust.only(known.certificate());
        assertEquals("", connect(known, only, false, null));
        assertThrows(SSLException.class, () -> connect(other, only, false, null));
    }

    @Test
    void invalidCertificatesAndKeysAreRefusedAndChangeNothing() throws Exception {
        Own own = make("own", "EC");
        List<String> installed = List.of(Trust.installed());
        SSLContext context = SSLContext.getDefault();
        assertThrows(
                GeneralSecurityException.class, () -> Trust.install("", own.certificate(), own.certificate()));
        String garbage = own.key().replaceAll("\n[A-Za-z0-9+/]{8}", "\nAAAAAAAA");
        assertThrows(GeneralSecurityException.class, () -> Trust.install("", own.certificate(), garbage));
        assertThrows(GeneralSecurityException.class, () -> Trust.install("no certificate", "", ""));
        assertEquals(installed, List.of(Trust.installed()));
        assertEquals(context, SSLContext.getDefault());
    }
}
