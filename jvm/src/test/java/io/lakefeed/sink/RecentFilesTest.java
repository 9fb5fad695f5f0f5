package io.lakefeed.sink;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class RecentFilesTest {
    private final RecentFiles files = new RecentFiles(100);

    @Test
    void theOldestFileIsDroppedFirst() {
        files.put("a", new byte[60]);
        files.put("b", new byte[40]);
        assertNotNull(files.get("a"));
        files.put("c", new byte[1]);
        assertNull(files.get("a"));
        assertNotNull(files.get("b"));
        assertNotNull(files.get("c"));
    }

    @Test
    void aRewrittenFileHasItsNewestContent() {
        files.put("a", new byte[60]);
        files.put("a", new byte[] {7});
        assertArrayEquals(new byte[] {7}, files.get("a"));
        files.put("b", new byte[99]);
        assertNotNull(files.get("a"), "the replaced content no longer counts");
    }

    @Test
    void filesAreRemovedByNameOrByFolder() {
        files.put("t/metadata/a", new byte[30]);
        files.put("t/metadata/b", new byte[30]);
        files.put("u/metadata/a", new byte[30]);
        files.remove("t/metadata/a");
        files.remove("missing");
        files.removeBelow("t/");
        assertNull(files.get("t/metadata/a"));
        assertNull(files.get("t/metadata/b"));
        files.put("v", new byte[70]);
        assertNotNull(files.get("u/metadata/a"), "the bytes of removed files are free");
    }

    @Test
    void eachFolderKeepsItsNewestFiles() {
        RecentFiles tables = new RecentFiles(100, 2);
        tables.put("t/metadata/1", new byte[10]);
        tables.put("u/metadata/1", new byte[10]);
        tables.put("t/metadata/2", new byte[10]);
        tables.put("t/metadata/3", new byte[10]);
        assertNull(tables.get("t/metadata/1"));
        assertNotNull(tables.get("t/metadata/2"));
        assertNotNull(tables.get("t/metadata/3"));
        assertNotNull(tables.get("u/metadata/1"), "each folder has its own number");
        tables.put("t/metadata/2", new byte[] {7});
        assertNotNull(tables.get("t/metadata/3"), "a replaced file counts once");
    }

    @Test
    void aFileMayTakeAQuarterOfTheLimit() {
        assertEquals(25, files.largest());
    }

    @Test
    void theNameOfTheLastFileThatWasTooLargeIsRemembered() {
        assertFalse(files.isLarge("a"));
        files.setLarge("a");
        assertTrue(files.isLarge("a"));
        files.setLarge("b");
        assertFalse(files.isLarge("a"));
    }

    @Test
    void aFileThatExceedsTheLimitRemovesAllFiles() {
        files.put("a", new byte[10]);
        files.put("b", new byte[101]);
        assertNull(files.get("a"));
        assertNull(files.get("b"));
    }
}
