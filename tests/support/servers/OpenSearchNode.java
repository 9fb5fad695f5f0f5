import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** One OpenSearch node on the loopback interface. Arguments: its folder, the port of its REST API, and of its transport. */
public class OpenSearchNode extends Node {
    OpenSearchNode(Settings settings) {
        super(
                InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "node"),
                List.of(Netty4Plugin.class),
                false);
    }

    public static void main(String[] arguments) throws Exception {
        Node node = new OpenSearchNode(Settings.builder()
                .put("path.home", arguments[0])
                .put("network.host", "127.0.0.1")
                .put("http.port", arguments[1])
                .put("transport.port", arguments[2])
                .put("discovery.type", "single-node")
                // Else a full disk of the machine makes all indexes read-only.
                .put("cluster.routing.allocation.disk.threshold_enabled", false)
                .build());
        node.start();
        new CountDownLatch(1).await();
    }
}
