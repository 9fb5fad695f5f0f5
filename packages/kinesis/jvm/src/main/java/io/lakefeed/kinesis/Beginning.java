package io.lakefeed.kinesis;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * Stores, in the checkpoint, the position at which a query begins. Spark's log has only the ends of batches, but a
 * retry of the first batch must begin at the same position.
 */
final class Beginning {
    private static final String VERSION = "v1\n";

    private final Path file;

    Beginning(String checkpointLocation) {
        this.file = new Path(checkpointLocation, "0");
    }

    /** Returns the stored position; if none is stored, stores and returns the position from {@code first}. */
    String orElse(Supplier<String> first) {
        Configuration settings = SparkSession.active().sessionState().newHadoopConf();
        CheckpointFileManager files = CheckpointFileManager.create(file.getParent(), settings);
        try {
            if (files.exists(file)) {
                try (InputStream written = files.open(file)) {
                    return new String(written.readAllBytes(), StandardCharsets.UTF_8).substring(VERSION.length());
                }
            }
            files.mkdirs(file.getParent());
            String begins = first.get();
            var output = files.createAtomic(file, false);
            try {
                output.write((VERSION + begins).getBytes(StandardCharsets.UTF_8));
                output.close();
            } catch (IOException failed) {
                output.cancel();
                throw failed;
            }
            return begins;
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }
}
