import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.function.Supplier;

/**
 * One node of OpenSearch or Elasticsearch on the loopback interface, with a module for HTTP and no other.
 *
 * <p>Arguments: the module's class, the node's folder, the port of its REST API, and of its transport. By reflection,
 * since the compiler of Java 17 does not read the newer servers' classes.
 */
public class SearchNode {
    public static void main(String[] arguments) throws Exception {
        boolean isElasticsearch = arguments[0].startsWith("org.elasticsearch.");
        String root = isElasticsearch ? "org.elasticsearch." : "org.opensearch.";
        Map<String, String> given = Map.of(
                "path.home", arguments[1],
                "network.host", "127.0.0.1",
                "http.port", arguments[2],
                "transport.port", arguments[3],
                "discovery.type", "single-node",
                // Without this setting, all indexes would be read-only while the machine's disk is nearly full.
                "cluster.routing.allocation.disk.threshold_enabled", "false");
        Class<?> settings = Class.forName(root + "common.settings.Settings");
        Object builder = settings.getMethod("builder").invoke(null);
        Method put = builder.getClass().getMethod("put", String.class, String.class);
        for (Map.Entry<String, String> each : given.entrySet()) {
            put.invoke(builder, each.getKey(), each.getValue());
        }
        if (isElasticsearch) {
            Class.forName(root + "common.logging.LogConfigurator").getMethod("configureESLogging").invoke(null);
        }
        Supplier<String> name = () -> "node";
        Object environment = Class.forName(root + "node.InternalSettingsPreparer")
                .getMethod("prepareEnvironment", settings, Map.class, Path.class, Supplier.class)
                .invoke(null, builder.getClass().getMethod("build").invoke(builder), Map.of(), null, name);
        Object node = isElasticsearch ? elasticsearch(environment) : opensearch(environment, arguments[0]);
        node.getClass().getMethod("start").invoke(node);
        new CountDownLatch(1).await();
    }

    /** Loads the module from the node's folder, as the server does; not as a Java module, so without exports. */
    private static Object elasticsearch(Object environment) throws Exception {
        Class<?> loaders = Class.forName("org.elasticsearch.plugins.PluginsLoader");
        Object folder = environment.getClass().getMethod("modulesDir").invoke(environment);
        Object modules = loaders.getMethod("loadModulesBundles", Path.class, boolean.class).invoke(null, folder, false);
        Object loader = loaders.getMethod("createPluginsLoader", Set.class, Set.class, Map.class, boolean.class)
                .invoke(null, modules, Set.of(), Map.of(), false);
        return Class.forName("org.elasticsearch.node.Node")
                .getConstructor(environment.getClass(), loaders)
                .newInstance(environment, loader);
    }

    /** Loads the module from the class path, because the part that loads from a folder is not in Maven Central. */
    private static Object opensearch(Object environment, String module) throws Exception {
        Constructor<?> constructor = Class.forName("org.opensearch.node.Node")
                .getDeclaredConstructor(environment.getClass(), Collection.class, boolean.class);
        constructor.setAccessible(true);
        Object plugin = Class.forName(module);
        if (constructor.getGenericParameterTypes()[1].getTypeName().contains("PluginInfo")) {
            // Since version 3, the constructor takes a PluginInfo instead of the module's class.
            Class<?> version = Class.forName("org.opensearch.Version");
            Object current = version.getField("CURRENT").get(null);
            plugin = Class.forName("org.opensearch.plugins.PluginInfo")
                    .getConstructor(
                            String.class,
                            String.class,
                            String.class,
                            version,
                            String.class,
                            String.class,
                            List.class,
                            boolean.class)
                    .newInstance(module, "HTTP", current.toString(), current, "21", module, List.of(), false);
        }
        return constructor.newInstance(environment, List.of(plugin), false);
    }
}
