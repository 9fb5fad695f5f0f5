package io.lakefeed.kafka;

import java.util.Set;
import java.util.function.Function;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A source as a table of Spark; {@code scans} creates the scan from the options of a read. */
@SuppressWarnings("deprecation") // Spark calls the deprecated schema() if a table does not define columns().
record SourceTable(
        String name, StructType schema, Set<TableCapability> capabilities, Function<CaseInsensitiveStringMap, Scan> scans)
        implements SupportsRead {
    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return () -> scans.apply(options);
    }
}
