package io.lakefeed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class SecretsTest {
    @Test
    void aSecretIsStoredUntilItIsRemoved() {
        Secrets.put("SecretsTest", "one");
        Secrets.put("SecretsTest", "two");
        assertEquals("two", Secrets.get("SecretsTest"));
        Secrets.remove("SecretsTest");
        assertFalse(Secrets.has("SecretsTest"));
        IllegalStateException missing = assertThrows(IllegalStateException.class, () -> Secrets.get("SecretsTest"));
        assertTrue(missing.getMessage().contains("SecretsTest"), missing.getMessage());
    }
}
