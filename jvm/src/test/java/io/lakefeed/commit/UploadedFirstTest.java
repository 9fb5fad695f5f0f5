package io.lakefeed.commit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.lakefeed.sink.Uploads;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Proxy;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.junit.jupiter.api.Test;

/** Tests that a commit waits for the uploads of its files if the server of the catalog writes the metadata file. */
class UploadedFirstTest {
    private static final String FOLDER = "s3://lake/uploaded/metadata/";

    private int commits;
    private final CheckedOperations operations = new CheckedOperations(
            (TableOperations) Proxy.newProxyInstance(
                    getClass().getClassLoader(), new Class<?>[] {TableOperations.class}, (self, method, arguments) ->
                            switch (method.getName()) {
                                case "metadataFileLocation" -> FOLDER + arguments[0];
                                case "commit" -> {
                                    commits++;
                                    yield null;
                                }
                                default -> throw new UnsupportedOperationException(method.getName());
                            }),
            "lake.a.t");

    @Test
    void aFailedUploadFailsTheCommit() {
        TableMetadata base = Tables.empty();
        Uploads uploads = Uploads.beside(FOLDER);
        try {
            Uploads.start(FOLDER + "manifest.avro", () -> {
                throw new IOException("503 Slow Down");
            });
            TableMetadata changed = Tables.commit(base, 1, "A 0 5");
            assertThrows(UncheckedIOException.class, () -> operations.commit(base, changed));
            assertEquals(0, commits);
        } finally {
            uploads.close();
        }
        operations.commit(base, Tables.commit(base, 1, "A 0 5"));
        assertEquals(1, commits);
    }
}
