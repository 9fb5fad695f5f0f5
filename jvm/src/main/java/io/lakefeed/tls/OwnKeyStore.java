package io.lakefeed.tls;

import java.io.InputStream;
import java.io.OutputStream;
import java.security.GeneralSecurityException;
import java.security.Key;
import java.security.KeyStore;
import java.security.KeyStoreException;
import java.security.KeyStoreSpi;
import java.security.Provider;
import java.security.Security;
import java.security.UnrecoverableKeyException;
import java.security.cert.Certificate;
import java.util.Date;
import java.util.Enumeration;

/**
 * A key store that has this JVM's own certificate and key, whatever the file has from which the store is loaded.
 *
 * <p>Some clients, such as the AWS SDK's, take their certificate only from the file that the system property {@code
 * javax.net.ssl.keyStore} names. With this type of store, the file need not contain the private key, which stays in
 * memory.
 */
public final class OwnKeyStore extends KeyStoreSpi {
    /** The value of {@code javax.net.ssl.keyStoreType}. */
    static final String KIND = "lakefeed-own";

    private static final char[] NONE = new char[0];

    private KeyStore own;

    static void register() {
        Security.addProvider(new Own());
    }

    private static final class Own extends Provider {
        private static final long serialVersionUID = 1;

        Own() {
            super("lakefeed", "1", "This JVM's own certificate and key");
            put("KeyStore." + KIND, OwnKeyStore.class.getName());
        }
    }

    @Override
    public void engineLoad(InputStream ignored, char[] password) {
        own = Trust.ownStore();
    }

    @Override
    public Key engineGetKey(String alias, char[] password) throws UnrecoverableKeyException {
        try {
            return own.getKey(alias, NONE);
        } catch (UnrecoverableKeyException unreadable) {
            throw unreadable;
        } catch (GeneralSecurityException unusable) {
            throw new IllegalStateException(unusable);
        }
    }

    @Override
    public Certificate[] engineGetCertificateChain(String alias) {
        return of(() -> own.getCertificateChain(alias));
    }

    @Override
    public Certificate engineGetCertificate(String alias) {
        return of(() -> own.getCertificate(alias));
    }

    @Override
    public Date engineGetCreationDate(String alias) {
        return of(() -> own.getCreationDate(alias));
    }

    @Override
    public Enumeration<String> engineAliases() {
        return of(own::aliases);
    }

    @Override
    public boolean engineContainsAlias(String alias) {
        return of(() -> own.containsAlias(alias));
    }

    @Override
    public int engineSize() {
        return of(own::size);
    }

    @Override
    public boolean engineIsKeyEntry(String alias) {
        return of(() -> own.isKeyEntry(alias));
    }

    @Override
    public boolean engineIsCertificateEntry(String alias) {
        return of(() -> own.isCertificateEntry(alias));
    }

    @Override
    public String engineGetCertificateAlias(Certificate certificate) {
        return of(() -> own.getCertificateAlias(certificate));
    }

    @Override
    public void engineSetKeyEntry(String alias, Key key, char[] password, Certificate[] chain) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void engineSetKeyEntry(String alias, byte[] key, Certificate[] chain) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void engineSetCertificateEntry(String alias, Certificate certificate) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void engineDeleteEntry(String alias) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void engineStore(OutputStream stream, char[] password) {
        throw new UnsupportedOperationException();
    }

    private interface Question<T> {
        T answer() throws KeyStoreException;
    }

    private static <T> T of(Question<T> question) {
        try {
            return question.answer();
        } catch (KeyStoreException notLoaded) {
            throw new IllegalStateException(notLoaded);
        }
    }
}
