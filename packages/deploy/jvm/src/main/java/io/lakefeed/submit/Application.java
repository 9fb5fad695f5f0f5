package io.lakefeed.submit;

import java.io.IOException;
import java.io.InputStream;
import java.net.URISyntaxException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkUserAppException;
import org.apache.spark.deploy.PythonRunner;
import org.apache.spark.util.MutableURLClassLoader;
import org.apache.spark.util.SignalUtils;

/**
 * Runs lakefeed's driver in Python from the application jar that {@code lakefeed deploy package} writes.
 *
 * <p>On a standalone cluster in cluster mode, spark-submit takes no Python file and copies only the application's jar
 * to the driver's machine. So the jar contains Python packages, jars for driver and executors, and the pipeline. The
 * cluster must have Spark and a Python of the right version.
 */
public final class Application {
    /** The folder in the application jar that is unpacked on the driver's machine. */
    private static final String CONTENT = "application/";

    private Application() {}

    /**
     * Unpacks the jar of this class, and runs its {@code main.py} until it ends.
     *
     * @param arguments the arguments of {@code lakefeed run} that follow the pipeline file
     * @throws Exception if the jar cannot be unpacked, or Python cannot be started
     */
    public static void main(String[] arguments) throws Exception {
        forwardSignals();
        Path jar = placeOf(Application.class);
        Path folder = newFolder(jar);
        int status;
        try {
            unpack(jar, folder);
            addJars(folder.resolve("jars"));
            status = runPython(folder, arguments);
        } finally {
            delete(folder);
        }
        // Without exit(), threads of the SparkContext keep the JVM alive, and Spark reports the status 1 for each
        // failure.
        System.exit(status);
    }

    /** Returns an empty folder. A driver that Spark restarts finds the folder of the killed driver and empties it. */
    private static Path newFolder(Path jar) throws IOException {
        Path here = Path.of("").toAbsolutePath();
        // On a cluster the working directory already contains the jar, which the worker has copied; create the folder
        // beside it.
        if (!here.equals(jar.getParent())) {
            return Files.createTempDirectory("lakefeed-");
        }
        Path folder = here.resolve("lakefeed-application");
        if (Files.exists(folder)) {
            delete(folder);
        }
        return Files.createDirectory(folder);
    }

    private static int runPython(Path folder, String[] arguments) throws Exception {
        // Do not use SPARK_HOME: it has the value of the machine that has submitted the application.
        Path home = placeOf(SparkConf.class).getParent().getParent();
        String libraries;
        try (Stream<Path> found = Files.list(home.resolve("python").resolve("lib"))) {
            libraries = found.map(Path::toString).filter(name -> name.endsWith(".zip")).sorted().collect(Collectors.joining(","));
        }
        String[] main = {folder.resolve("main.py").toString(), libraries};
        try {
            PythonRunner.main(Stream.of(main, arguments).flatMap(Arrays::stream).toArray(String[]::new));
            return 0;
        } catch (Exception failed) {
            // Scala declares no checked exceptions, so javac refuses to catch SparkUserAppException by its name.
            if (failed instanceof SparkUserAppException ended) {
                return ended.exitCode();
            }
            throw failed;
        }
    }

    /**
     * Passes SIGTERM to Python, which then completes its batch. If SIGTERM were not passed on, the JVM would end during
     * the batch.
     */
    private static void forwardSignals() {
        SignalUtils.register("TERM", () -> {
            List<ProcessHandle> children = ProcessHandle.current().children().toList();
            children.forEach(ProcessHandle::destroy);
            return !children.isEmpty();
        });
    }

    private static void addJars(Path folder) throws IOException {
        List<Path> jars;
        try (Stream<Path> found = Files.list(folder)) {
            jars = found.sorted().toList();
        }
        MutableURLClassLoader loader = (MutableURLClassLoader) Thread.currentThread().getContextClassLoader();
        for (Path jar : jars) {
            loader.addURL(jar.toUri().toURL());
        }
        // The SparkContext sends these jars to the executors, which need nothing else of the application's jar.
        System.setProperty("spark.jars", jars.stream().map(jar -> jar.toUri().toString()).collect(Collectors.joining(",")));
    }

    static void unpack(Path jar, Path target) throws IOException {
        try (ZipFile archive = new ZipFile(jar.toFile())) {
            for (Enumeration<? extends ZipEntry> entries = archive.entries(); entries.hasMoreElements();) {
                ZipEntry entry = entries.nextElement();
                if (entry.isDirectory() || !entry.getName().startsWith(CONTENT)) {
                    continue;
                }
                Path file = target.resolve(entry.getName().substring(CONTENT.length())).normalize();
                if (!file.startsWith(target)) {
                    throw new IOException("the application jar has an entry outside of its folder: " + entry.getName()
                            + ": write the jar again with lakefeed deploy package");
                }
                Files.createDirectories(file.getParent());
                try (InputStream content = archive.getInputStream(entry)) {
                    Files.copy(content, file);
                }
            }
        }
    }

    private static Path placeOf(Class<?> type) throws URISyntaxException {
        return Path.of(type.getProtectionDomain().getCodeSource().getLocation().toURI());
    }

    private static void delete(Path folder) throws IOException {
        Files.walkFileTree(folder, new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
                Files.delete(file);
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult postVisitDirectory(Path emptied, IOException failed) throws IOException {
                Files.delete(emptied);
                return FileVisitResult.CONTINUE;
            }
        });
    }
}
