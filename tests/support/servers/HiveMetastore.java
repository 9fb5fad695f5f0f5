import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore.HMSHandler;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.api.MetaException;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;
import org.apache.thrift.transport.TTransportFactory;

/**
 * Hive's metastore from PySpark's jars, with its tables in an embedded Derby, on the loopback interface.
 *
 * <p>Hive's own main class would listen on all interfaces. Arguments: the port, and a folder. While the folder has a
 * file {@code answers-lost}, changes of tables are made and reported as conflicts. Environment: {@code
 * METASTORE_PROPERTIES}, one {@code name=value} a line, which no {@code ps} shows.
 */
public class HiveMetastore {
    /** Hive's own words, by which Iceberg recognizes a conflict. */
    private static final String CONFLICT =
            "The table has been modified. The parameter value for key 'metadata_location' is another one";

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[1]);
        HiveConf conf = new HiveConf();
        conf.set("javax.jdo.option.ConnectionURL", "jdbc:derby:;databaseName=" + folder.resolve("db") + ";create=true");
        conf.set("hive.metastore.warehouse.dir", folder.resolve("warehouse").toUri().toString());
        conf.set("datanucleus.schema.autoCreateAll", "true");
        conf.set("hive.metastore.schema.verification", "false");
        // HikariCP is the only connection pool in PySpark's jars.
        conf.set("datanucleus.connectionPoolingType", "HikariCP");
        // This call creates the tables of locks, which DataNucleus does not create.
        TxnDbUtil.prepDb(conf);
        System.getenv("METASTORE_PROPERTIES").lines().filter(line -> !line.isEmpty()).forEach(line -> {
            int at = line.indexOf('=');
            conf.set(line.substring(0, at), line.substring(at + 1));
        });
        IHMSHandler handler = RetryingHMSHandler.getProxy(conf, new HMSHandler("metastore", conf, false), false);
        IHMSHandler losing = (IHMSHandler) Proxy.newProxyInstance(
                HiveMetastore.class.getClassLoader(), new Class<?>[] {IHMSHandler.class}, (proxy, method, given) -> {
                    Object found;
                    try {
                        found = method.invoke(handler, given);
                    } catch (InvocationTargetException failed) {
                        throw failed.getCause();
                    }
                    if (method.getName().startsWith("alter_table") && Files.exists(folder.resolve("answers-lost"))) {
                        throw new MetaException(CONFLICT);
                    }
                    return found;
                });
        InetSocketAddress address = new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0]));
        new TThreadPoolServer(new TThreadPoolServer.Args(new TServerSocket(address))
                        .processor(new TSetIpAddressProcessor<>(losing))
                        .transportFactory(new TTransportFactory())
                        .protocolFactory(new TBinaryProtocol.Factory())
                        .minWorkerThreads(2)
                        .maxWorkerThreads(64))
                .serve();
    }
}
