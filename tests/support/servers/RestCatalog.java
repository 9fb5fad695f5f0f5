import jakarta.servlet.http.HttpServlet;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/**
 * Iceberg's own implementation of its REST catalog protocol, from the jar of its tests, on the loopback interface.
 *
 * <p>Argument: the port. The environment variable {@code CATALOG_PROPERTIES} has one {@code name=value} on each line; it
 * is no argument, because {@code ps} would show the properties.
 */
public class RestCatalog {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> properties = new HashMap<>();
        System.getenv("CATALOG_PROPERTIES").lines().forEach(line -> {
            int at = line.indexOf('=');
            properties.put(line.substring(0, at), line.substring(at + 1));
        });
        HttpServlet servlet = new RESTCatalogServlet(
                new RESTCatalogAdapter(CatalogUtil.buildIcebergCatalog("backend", properties, new Configuration(false))));
        Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
        ServletContextHandler context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
        context.addServlet(new ServletHolder(servlet), "/*");
        server.setHandler(context);
        server.start();
        server.join();
    }
}
