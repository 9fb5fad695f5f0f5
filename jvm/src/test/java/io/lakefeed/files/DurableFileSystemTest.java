package io.lakefeed.files;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class DurableFileSystemTest {
    @TempDir
    Path folder;

    private FileSystem files() throws Exception {
        Configuration conf = new Configuration();
        conf.set("fs.file.impl", DurableFileSystem.class.getName());
        return FileSystem.newInstance(folder.toUri(), conf);
    }

    private static org.apache.hadoop.fs.Path hadoop(Path path) {
        return new org.apache.hadoop.fs.Path(path.toUri());
    }

    @Test
    void aFileIsWrittenWithoutAChecksumFile() throws Exception {
        Path file = folder.resolve("new/folder/of ärger/data.parquet");
        byte[] content = "rows".repeat(100_000).getBytes();
        try (FileSystem files = files()) {
            FSDataOutputStream stream = files.create(hadoop(file), false);
            stream.write(content);
            stream.hflush();
            assertEquals(content.length, stream.getPos());
            stream.close();
            stream.close();
            assertThrows(java.io.IOException.class, () -> files.create(hadoop(file), false));
            try (FSDataOutputStream again = files.create(hadoop(file), true)) {
                again.write(1);
            }
        }
        assertEquals(1, Files.size(file));
        try (Stream<Path> there = Files.list(file.getParent())) {
            assertEquals(List.of("data.parquet"), there.map(each -> each.getFileName().toString()).toList());
        }
    }

    @Test
    void s3aCanUseTheFileSystemForItsBuffers() throws Exception {
        Configuration conf = new Configuration();
        conf.set("fs.file.impl", DurableFileSystem.class.getName());
        conf.setBoolean("fs.file.impl.disable.cache", true);
        assertInstanceOf(LocalFileSystem.class, FileSystem.getLocal(conf));
    }
}
