package io.lakefeed.tls;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;

/**
 * Makes this JVM trust further authorities besides Java's own, and send a certificate to servers that ask for a
 * client's certificate.
 *
 * <p>A JVM has many clients: Kafka's, the AWS SDK's, Iceberg's, JDBC drivers, Java's own. Some use the default {@link
 * SSLContext}, others the default stores, whose files are named by system properties. {@link #install} sets both,
 * before any client is opened. The private key stays in memory: see {@link OwnKeyStore}.
 */
public final class Trust {
    private static final Pattern KEY =
            Pattern.compile("-----BEGIN PRIVATE KEY-----(.*?)-----END PRIVATE KEY-----", Pattern.DOTALL);
    /** The password of a store with public certificates; Java's own store has the same. */
    private static final String STORE_PASSWORD = "changeit";

    private static final Set<Certificate> AUTHORITIES = new LinkedHashSet<>();

    /** The last installed authorities, certificate and key in PEM; what is not used is an empty text. */
    private static List<String> installed = List.of("", "", "");

    private static KeyStore ownStore;

    private Trust() {}

    /**
     * Installs authorities, a certificate and its key, all in PEM; what is not used is an empty text.
     *
     * <p>Authorities of earlier calls stay trusted. Clients that are already open do not use the new ones.
     *
     * @throws GeneralSecurityException if a text has no certificates, or the key cannot be read
     */
    public static synchronized void install(String authorities, String certificate, String key)
            throws GeneralSecurityException, IOException {
        List<String> requested = List.of(authorities, certificate, key);
        if (requested.equals(installed)) {
            return;
        }
        KeyStore own = certificate.isEmpty() ? ownStore : ownStore(certificate, key);
        if (AUTHORITIES.isEmpty()) {
            AUTHORITIES.addAll(List.of(defaultTrust().getAcceptedIssuers()));
        }
        AUTHORITIES.addAll(certificates(authorities));
        KeyStore trusted = storeOf(AUTHORITIES);
        Path file = Files.createTempFile("lakefeed-trusted-", ".p12");
        file.toFile().deleteOnExit();
        try (OutputStream out = Files.newOutputStream(file)) {
            trusted.store(out, STORE_PASSWORD.toCharArray());
        }
        System.setProperty("javax.net.ssl.trustStore", file.toString());
        System.setProperty("javax.net.ssl.trustStoreType", "PKCS12");
        System.setProperty("javax.net.ssl.trustStorePassword", STORE_PASSWORD);
        ownStore = own;
        if (own != null) {
            OwnKeyStore.register();
            System.setProperty("javax.net.ssl.keyStore", file.toString());
            System.setProperty("javax.net.ssl.keyStoreType", OwnKeyStore.KIND);
            System.setProperty("javax.net.ssl.keyStorePassword", "");
        }
        SSLContext.setDefault(context(own, trusted));
        installed = requested;
    }

    /** Returns the last installed authorities, certificate and key, for the other JVMs of this application. */
    public static synchronized String[] installed() {
        return installed.toArray(new String[0]);
    }

    /** Returns the certificate that this JVM sends, with its key; null if it has none. */
    static synchronized KeyStore ownStore() {
        return ownStore;
    }

    /**
     * Returns a context that trusts only these authorities (PEM), and sends this JVM's certificate.
     *
     * @throws GeneralSecurityException if the text has no certificates
     */
    public static SSLContext only(String authorities) throws GeneralSecurityException, IOException {
        return context(ownStore(), storeOf(certificates(authorities)));
    }

    private static SSLContext context(KeyStore own, KeyStore trusted) throws GeneralSecurityException {
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(own, new char[0]);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(own == null ? null : keys.getKeyManagers(), trustManagers(trusted), null);
        return context;
    }

    /** Returns the trust managers of a store, or of Java's default store if {@code trusted} is null. */
    private static TrustManager[] trustManagers(KeyStore trusted) throws GeneralSecurityException {
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(trusted);
        return managers.getTrustManagers();
    }

    private static X509TrustManager defaultTrust() throws GeneralSecurityException {
        for (TrustManager each : trustManagers(null)) {
            if (each instanceof X509TrustManager found) {
                return found;
            }
        }
        throw new GeneralSecurityException("this Java has no trust manager for certificates (X509TrustManager)");
    }

    private static Collection<? extends Certificate> certificates(String text) throws GeneralSecurityException {
        return CertificateFactory.getInstance("X.509")
                .generateCertificates(new ByteArrayInputStream(text.getBytes(StandardCharsets.US_ASCII)));
    }

    private static KeyStore storeOf(Collection<? extends Certificate> authorities)
            throws GeneralSecurityException, IOException {
        KeyStore store = emptyStore();
        for (Certificate each : authorities) {
            store.setCertificateEntry("authority-" + store.size(), each);
        }
        return store;
    }

    private static KeyStore ownStore(String certificate, String key) throws GeneralSecurityException, IOException {
        KeyStore store = emptyStore();
        Certificate[] chain = certificates(certificate).toArray(new Certificate[0]);
        store.setKeyEntry("own", privateKey(key), new char[0], chain);
        return store;
    }

    private static PrivateKey privateKey(String text) throws GeneralSecurityException {
        Matcher found = KEY.matcher(text);
        if (!found.find()) {
            throw new GeneralSecurityException("the key file has no private key in PKCS #8: convert it with 'openssl pkcs8'");
        }
        PKCS8EncodedKeySpec encoded = new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(found.group(1)));
        for (String kind : List.of("RSA", "EC", "EdDSA")) {
            try {
                return KeyFactory.getInstance(kind).generatePrivate(encoded);
            } catch (InvalidKeySpecException another) {
                // A key in PKCS #8 names its algorithm, so the factories of other algorithms refuse it.
            }
        }
        throw new GeneralSecurityException("the private key is neither RSA, EC nor EdDSA: use one of these");
    }

    private static KeyStore emptyStore() throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }
}
