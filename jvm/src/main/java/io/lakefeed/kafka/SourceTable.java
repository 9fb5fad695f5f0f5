package io.lakefeed.kafka;

import java.util.Set;
import java.util.function.Function;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A source as Spark's table; the options of a read create its scan. */
@SuppressWarnings("deprecation") // Spark asks for the schema where a table names no columns.
record SourceTable(
        String name, StructType schema, Set<TableCapability> capabilities, Function<CaseInsensitiveStringMap, Scan> scans)
        implements SupportsRead {
    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return () -> scans.apply(options);
    }
}
