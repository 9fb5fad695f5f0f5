package io.lakefeed.produce;

import java.io.Serializable;
import java.util.Arrays;
import java.util.HashSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.TaskContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.csv.CSVHeaderChecker;
import org.apache.spark.sql.catalyst.csv.CSVOptions;
import org.apache.spark.sql.catalyst.csv.UnivocityParser;
import org.apache.spark.sql.catalyst.util.FailFastMode$;
import org.apache.spark.sql.execution.datasources.HadoopFileLinesReader;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.csv.CSVFileFormat;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import org.apache.spark.util.TaskCompletionListener;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction1;

/**
 * Spark's CSV files with a shorter way for plain lines: {@code spark.read.format("io.lakefeed.produce.CsvFiles")}.
 *
 * <p>Options, rows and errors are those of {@code format("csv")}. A line without quotes whose values are written
 * plainly becomes a row straight from its bytes ({@link CsvLine}); Spark's own parser reads every other line. It reads
 * all lines where an option departs from commas, double quotes, UTF-8, empty nulls and {@code mode=FAILFAST}.
 */
public final class CsvFiles extends CSVFileFormat {
    private static final long serialVersionUID = 1L;

    /** Spark creates it. */
    public CsvFiles() {}

    @Override
    public Function1<PartitionedFile, Iterator<InternalRow>> buildReader(
            SparkSession spark,
            StructType dataSchema,
            StructType partitionSchema,
            StructType requiredSchema,
            Seq<Filter> filters,
            Map<String, String> options,
            Configuration hadoop) {
        Reader own = reader(spark, dataSchema, requiredSchema, filters, options, hadoop);
        return own != null
                ? own
                : super.buildReader(spark, dataSchema, partitionSchema, requiredSchema, filters, options, hadoop);
    }

    /** Without columns of the path the rows are complete as they are: Spark need not copy each. */
    @Override
    public Function1<PartitionedFile, Iterator<InternalRow>> buildReaderWithPartitionValues(
            SparkSession spark,
            StructType dataSchema,
            StructType partitionSchema,
            StructType requiredSchema,
            Seq<Filter> filters,
            Map<String, String> options,
            Configuration hadoop) {
        if (partitionSchema.isEmpty()) {
            Reader own = reader(spark, dataSchema, requiredSchema, filters, options, hadoop);
            if (own != null) {
                return own;
            }
        }
        return super.buildReaderWithPartitionValues(
                spark, dataSchema, partitionSchema, requiredSchema, filters, options, hadoop);
    }

    private static Reader reader(
            SparkSession spark,
            StructType dataSchema,
            StructType requiredSchema,
            Seq<Filter> filters,
            Map<String, String> options,
            Configuration hadoop) {
        org.apache.spark.sql.classic.SparkSession session = (org.apache.spark.sql.classic.SparkSession) spark;
        SQLConf conf = session.sessionState().conf();
        CSVOptions parsed = new CSVOptions(
                options, conf.csvColumnPruning(), conf.sessionLocalTimeZone(), conf.columnNameOfCorruptRecord());
        boolean fits = filters.isEmpty()
                && isPlain(parsed)
                && parsed.isColumnPruningEnabled(requiredSchema)
                && !requiredSchema.isEmpty()
                && !Arrays.asList(dataSchema.fieldNames()).contains(parsed.columnNameOfCorruptRecord())
                && new HashSet<>(Arrays.asList(dataSchema.fieldNames())).size() == dataSchema.size()
                && CsvLine.canWrite(requiredSchema);
        if (!fits) {
            return null;
        }
        Broadcast<SerializableConfiguration> shared = session.sparkContext()
                .broadcast(
                        new SerializableConfiguration(hadoop),
                        ClassTag$.MODULE$.apply(SerializableConfiguration.class));
        return new Reader(shared, dataSchema, requiredSchema, parsed);
    }

    private static boolean isPlain(CSVOptions options) {
        return options.parseMode() == FailFastMode$.MODULE$
                && options.delimiter().equals(",")
                && options.quote() == '"'
                && options.charset().equalsIgnoreCase("UTF-8")
                && options.nullValue().isEmpty()
                && !options.multiLine()
                && !options.isCommentSet()
                && !options.ignoreLeadingWhiteSpaceInRead()
                && !options.ignoreTrailingWhiteSpaceInRead()
                && options.singleVariantColumn().isEmpty();
    }

    /** Reads one file, or a part of one; executors get it. */
    private static final class Reader extends AbstractFunction1<PartitionedFile, Iterator<InternalRow>>
            implements Serializable {
        private static final long serialVersionUID = 1L;

        private final Broadcast<SerializableConfiguration> hadoop;
        private final StructType columns;
        private final StructType required;
        private final CSVOptions options;

        Reader(
                Broadcast<SerializableConfiguration> hadoop,
                StructType columns,
                StructType required,
                CSVOptions options) {
            this.hadoop = hadoop;
            this.columns = columns;
            this.required = required;
            this.options = options;
        }

        @Override
        public Iterator<InternalRow> apply(PartitionedFile file) {
            HadoopFileLinesReader lines = new HadoopFileLinesReader(
                    file, options.lineSeparatorInRead(), hadoop.value().value());
            TaskContext task = TaskContext.get();
            if (task != null) {
                task.addTaskCompletionListener((TaskCompletionListener) ended -> lines.close());
            }
            UnivocityParser parser = new UnivocityParser(columns, required, options);
            String source = "CSV file: " + file.urlEncodedPath();
            Iterator<String> texts = CollectionConverters.asScala(new CsvRows.Texts(lines));
            new CSVHeaderChecker(required, options, source, file.start() == 0)
                    .checkHeaderColumnNames(texts, parser.tokenizer());
            // The header has been read: this one lets all lines pass.
            CSVHeaderChecker noHeader = new CSVHeaderChecker(required, options, source, false);
            return CollectionConverters.asScala(
                    new CsvRows(lines, new CsvLine(columns, required, parser), parser, noHeader, required));
        }
    }
}
