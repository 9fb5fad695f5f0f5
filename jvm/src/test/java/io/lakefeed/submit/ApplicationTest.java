package io.lakefeed.submit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ApplicationTest {
    @TempDir
    Path folder;

    @Test
    void onlyTheApplicationsFolderIsUnpacked() throws IOException {
        Path target = Files.createDirectory(folder.resolve("target"));
        Application.unpack(jarOf("application/python/one/two.py", "io/lakefeed/submit/Application.class"), target);
        assertEquals("application/python/one/two.py", Files.readString(target.resolve("python/one/two.py")));
        assertFalse(Files.exists(target.resolve("io")));
    }

    @Test
    void anEntryOutsideTheFolderIsRefused() throws IOException {
        Path target = Files.createDirectory(folder.resolve("target"));
        Path jar = jarOf("application/../../outside.py");
        IOException refused = assertThrows(IOException.class, () -> Application.unpack(jar, target));
        assertTrue(refused.getMessage().contains("outside of its folder"));
        assertFalse(Files.exists(folder.resolve("outside.py")));
    }

    private Path jarOf(String... names) throws IOException {
        Path jar = folder.resolve("application.jar");
        try (OutputStream file = Files.newOutputStream(jar);
                ZipOutputStream written = new ZipOutputStream(file)) {
            for (String name : names) {
                written.putNextEntry(new ZipEntry(name));
                written.write(name.getBytes(StandardCharsets.UTF_8));
            }
        }
        return jar;
    }
}
