package io.lakefeed;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.lang.annotation.Annotation;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/**
 * Compares the table in {@code jvm/src/test/interfaces.txt} with the imports of the module and with the annotations of
 * the imported classes. The working directory is the repository.
 */
class InterfacesTest {
    private static final String PACKAGES = "jvm/src/main/java/io/lakefeed";
    private static final String SHIMS = "jvm/shims/spark-4.1/io/lakefeed";
    private static final Path PAGE = Path.of("jvm/src/test/interfaces.txt");
    private static final Pattern IMPORT =
            Pattern.compile("^import (?:static )?((org\\.apache\\.(?:spark|iceberg)[a-z0-9.]*)\\.([A-Z][A-Za-z0-9_.$]*|[a-z]+))", Pattern.MULTILINE);

    /**
     * Spark's annotations of stability. The package of a class without such an annotation says whether it is public or
     * internal.
     */
    private static final Map<String, String> ANNOTATIONS = Map.of(
            "Stable", "stable", "Evolving", "evolving", "Unstable", "unstable", "Experimental", "experimental",
            "DeveloperApi", "developer API");

    private static final List<String> INTERNAL = List.of(
            "org.apache.spark.internal", "org.apache.spark.sql.avro", "org.apache.spark.sql.catalyst",
            "org.apache.spark.sql.classic", "org.apache.spark.sql.delta", "org.apache.spark.sql.execution", "org.apache.spark.sql.kafka010",
            "org.apache.spark.unsafe");
    private static final Set<String> INTERNAL_CLASSES =
            Set.of("org.apache.spark.util.SignalUtils", "org.apache.spark.util.Utils");
    private static final List<String> ICEBERG_ENGINES = List.of("org.apache.iceberg.aws", "org.apache.iceberg.spark");
    private static final Set<String> ICEBERG_CORE = Set.of(
            "BaseMetastoreTableOperations", "BaseTable", "HasTableOperations", "InMemoryInputFile", "SerializableTable",
            "SnapshotSummary", "TableMetadata", "TableOperations");

    /** The classes of one package that are equally stable, and the packages of the module that import them. */
    private record Group(Set<String> classes, Set<String> users) {}

    @Test
    void theFileListsEachImportedClassOfSparkAndIceberg() throws IOException, ClassNotFoundException {
        String expected = table();
        String page = Files.readString(PAGE);
        String found = page.lines()
                .filter(line -> line.startsWith("| `org.apache."))
                .collect(Collectors.joining("\n"));
        assertEquals(expected, found, "the table in " + PAGE + " should be:\n" + expected + "\n");
    }

    private static String table() throws IOException, ClassNotFoundException {
        Map<String, Group> groups = new TreeMap<>();
        for (Path sources : sources()) {
            try (Stream<Path> files = Files.walk(sources)) {
                for (Path file : files.filter(path -> path.toString().endsWith(".java")).toList()) {
                    Path folder = sources.relativize(file).getParent();
                    String user = folder == null ? "io.lakefeed" : folder.toString();
                    for (MatchResult found : IMPORT.matcher(Files.readString(file)).results().toList()) {
                        String key = "| `" + found.group(2) + "` | " + stability(found.group(1), found.group(2), found.group(3)) + " |";
                        Group group = groups.computeIfAbsent(key, any -> new Group(new TreeSet<>(), new TreeSet<>()));
                        group.classes.add("`" + found.group(3) + "`");
                        group.users.add(user);
                    }
                }
            }
        }
        return groups.entrySet().stream()
                .map(group -> group.getKey() + " " + String.join(", ", group.getValue().classes) + " | "
                        + String.join(", ", group.getValue().users) + " |")
                .collect(Collectors.joining("\n"));
    }

    /** Returns the source folders of the module and of the plug-ins. */
    private static List<Path> sources() throws IOException {
        try (Stream<Path> plugIns = Files.list(Path.of("packages"))) {
            return Stream.concat(Stream.of(Path.of(PACKAGES), Path.of(SHIMS)), plugIns.map(plugIn -> plugIn.resolve(PACKAGES)))
                    .filter(Files::isDirectory)
                    .toList();
        }
    }

    private static String stability(String name, String folder, String simple) throws ClassNotFoundException {
        if (folder.startsWith("org.apache.iceberg")) {
            if (ICEBERG_ENGINES.stream().anyMatch(folder::startsWith)) {
                return "no promise";
            }
            return ICEBERG_CORE.contains(simple) ? "minor version" : "major version";
        }
        for (Annotation annotation : classOf(folder, simple).getAnnotations()) {
            String stability = ANNOTATIONS.get(annotation.annotationType().getSimpleName());
            if (stability != null) {
                return stability;
            }
        }
        boolean internal = INTERNAL_CLASSES.contains(name) || INTERNAL.stream().anyMatch(folder::startsWith);
        return internal ? "internal" : "public";
    }

    private static Class<?> classOf(String folder, String simple) throws ClassNotFoundException {
        String name = folder + "." + simple.replace('.', '$');
        return Class.forName(name, false, InterfacesTest.class.getClassLoader());
    }
}
