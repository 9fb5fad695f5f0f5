package io.lakefeed;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;
import org.apache.spark.sql.sources.DataSourceRegister;

/**
 * Refuses another line of Spark than the one that this jar is built for, before a class or method is missing.
 *
 * <p>Spark asks each {@link DataSourceRegister} on the class path for its name when a query names a format, and so
 * before it loads a checkpoint manager, whose interface is in another package from 4.1 on.
 */
public final class SparkLine implements DataSourceRegister {
    private static final String REFUSAL = refusal();

    /**
     * Returns after a comparison of versions only.
     *
     * @throws IllegalStateException if Spark or Scala are of another line
     */
    public static void require() {
        if (REFUSAL != null) {
            throw new IllegalStateException(REFUSAL);
        }
    }

    @Override
    public String shortName() {
        require();
        return "io.lakefeed.SparkLine";
    }

    private static String refusal() {
        Properties built = read("io/lakefeed/spark-line.properties");
        String line = built.getProperty("spark");
        String language = built.getProperty("scala");
        String runs = read("spark-version-info.properties").getProperty("version");
        String runsOn = scala.util.Properties.versionNumberString();
        if (runs.startsWith(line + ".") && runsOn.startsWith(language + ".")) {
            return null;
        }
        return "this jar of lakefeed is for Spark " + line + " with Scala " + language + ", and this is Spark " + runs
                + " with Scala " + runsOn + ": take the jar for this line of Spark";
    }

    private static Properties read(String resource) {
        Properties read = new Properties();
        try (InputStream in = SparkLine.class.getClassLoader().getResourceAsStream(resource)) {
            read.load(in);
        } catch (IOException broken) {
            throw new UncheckedIOException(broken);
        }
        return read;
    }
}
