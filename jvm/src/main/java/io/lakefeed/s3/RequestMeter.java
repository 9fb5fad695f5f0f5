package io.lakefeed.s3;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Collectors;
import software.amazon.awssdk.core.SdkRequest;
import software.amazon.awssdk.core.interceptor.Context;
import software.amazon.awssdk.core.interceptor.ExecutionAttribute;
import software.amazon.awssdk.core.interceptor.ExecutionAttributes;
import software.amazon.awssdk.core.interceptor.ExecutionInterceptor;
import software.amazon.awssdk.core.interceptor.SdkExecutionAttribute;
import software.amazon.awssdk.http.SdkHttpMethod;
import software.amazon.awssdk.services.s3.model.Delete;

/**
 * Counts the HTTP requests of this JVM to S3 by operation (PutObject, HeadObject, …), by the purpose of the key, and by
 * the table or checkpoint that the key belongs to.
 *
 * <p>The AWS SDK 2 adds this interceptor to each S3 client of the JVM, to Hadoop's S3A and Iceberg's S3FileIO alike,
 * because the class path resource {@code software/amazon/awssdk/services/s3/execution.interceptors} names it. Each
 * attempt counts, as in the store: a request with two retries counts three times. {@link io.lakefeed.JvmPlugin} adds
 * the counts of executors.
 */
public final class RequestMeter implements ExecutionInterceptor {
    private static final ExecutionAttribute<Counter> UNANSWERED =
            new ExecutionAttribute<>("io.lakefeed.s3.RequestMeter.unanswered");
    /** The most counters. Further locations share one, so that a walk through a bucket does not fill the memory. */
    private static final int MOST_COUNTERS = 4096;

    private static final Map<Slot, Counter> COUNTERS = new ConcurrentHashMap<>();
    private static final Map<String, List<RequestCount>> EXECUTORS = new ConcurrentHashMap<>();
    private static final Map<String, BatchMarks> WATCHED = new ConcurrentHashMap<>();

    private record Slot(String operation, KeyClass keyClass, String location) {}

    private static final class Counter {
        private final LongAdder requests = new LongAdder();
        private final LongAdder bytesOut = new LongAdder();
        private final LongAdder bytesIn = new LongAdder();
        private final LongAdder errors = new LongAdder();
        private final Slot slot;

        Counter(Slot slot) {
            this.slot = slot;
        }

        RequestCount now() {
            return new RequestCount(
                    slot.operation,
                    slot.keyClass,
                    slot.location,
                    requests.sum(),
                    bytesOut.sum(),
                    bytesIn.sum(),
                    errors.sum());
        }
    }

    /** Returns a {@link RequestCount} on each line; counts of this JVM and of executors are separate lines. */
    public static String report() {
        return text(counts());
    }

    /**
     * From now on, stores the counts at the end of each batch of a query.
     *
     * @param checkpoint the query's checkpoint, {@code bucket/path}
     * @param locations the locations that the query reads and writes, including the checkpoint, one on each line
     */
    public static void watch(String checkpoint, String locations) {
        WATCHED.put(checkpoint, new BatchMarks(List.of(locations.split("\n"))));
    }

    public static void unwatch(String checkpoint) {
        WATCHED.remove(checkpoint);
    }

    /** Stores the counts at the end of a batch, for a query whose log of commits is not on S3. */
    public static void batchEnded(String checkpoint, long batch) {
        BatchMarks marks = WATCHED.get(checkpoint);
        if (marks != null) {
            marks.ended(batch);
        }
    }

    /** Returns the counts at the start of the query's first batch; null before the first batch. */
    public static String atFirstBatch(String checkpoint) {
        BatchMarks marks = WATCHED.get(checkpoint);
        return marks == null || marks.start() == null ? null : text(marks.start());
    }

    /** Returns the counts at the end of a batch; null if they are unknown. */
    public static String atCommit(String checkpoint, long batch) {
        BatchMarks marks = WATCHED.get(checkpoint);
        Collection<RequestCount> found = marks == null ? null : marks.atCommit(batch);
        return found == null ? null : text(found);
    }

    static Collection<RequestCount> below(List<String> locations) {
        return counts().stream()
                .filter(each -> locations.stream().anyMatch(each::isBelow))
                .toList();
    }

    public static List<RequestCount> own() {
        return COUNTERS.values().stream().map(Counter::now).toList();
    }

    public static void putExecutor(String executor, List<RequestCount> counts) {
        EXECUTORS.put(executor, counts);
    }

    private static Collection<RequestCount> counts() {
        List<RequestCount> all = new ArrayList<>(own());
        EXECUTORS.values().forEach(all::addAll);
        return all;
    }

    private static String text(Collection<RequestCount> counts) {
        return counts.stream().map(RequestCount::line).collect(Collectors.joining("\n"));
    }

    @Override
    public void beforeTransmission(Context.BeforeTransmission context, ExecutionAttributes attributes) {
        Counter before = attributes.getAttribute(UNANSWERED);
        if (before != null) {
            before.errors.increment();
        }
        String operation = attributes.getAttribute(SdkExecutionAttribute.OPERATION_NAME);
        KeyClass.Place place = KeyClass.place(
                field(context.request(), "Bucket").or(() -> field(context.request(), "DestinationBucket")).orElse(""),
                key(context.request()));
        if (place.keyClass() == KeyClass.OFFSETS && isWrite(operation)) {
            BatchMarks watching = WATCHED.get(place.location());
            if (watching != null) {
                watching.offsetsToBeWritten();
            }
        }
        Counter counter = counter(operation == null ? "unknown" : operation, place);
        counter.requests.increment();
        counter.bytesOut.add(length(context.httpRequest().firstMatchingHeader("Content-Length")));
        attributes.putAttribute(UNANSWERED, counter);
    }

    @Override
    public void afterTransmission(Context.AfterTransmission context, ExecutionAttributes attributes) {
        Counter counter = attributes.getAttribute(UNANSWERED);
        if (counter == null) {
            return;
        }
        attributes.putAttribute(UNANSWERED, null);
        boolean failed = context.httpResponse().statusCode() >= 400;
        if (failed) {
            counter.errors.increment();
        }
        // The answer to HEAD has the length of a body, but no body.
        if (context.httpRequest().method() != SdkHttpMethod.HEAD) {
            counter.bytesIn.add(length(context.httpResponse().firstMatchingHeader("Content-Length")));
        }
        if (!failed && counter.slot.keyClass == KeyClass.COMMITS && isWrite(counter.slot.operation)) {
            BatchMarks watching = WATCHED.get(counter.slot.location);
            if (watching != null) {
                watching.committed(key(context.request()));
            }
        }
    }

    @Override
    public void onExecutionFailure(Context.FailedExecution context, ExecutionAttributes attributes) {
        Counter counter = attributes.getAttribute(UNANSWERED);
        if (counter != null) {
            counter.errors.increment();
            attributes.putAttribute(UNANSWERED, null);
        }
    }

    private static Counter counter(String operation, KeyClass.Place place) {
        Slot slot = new Slot(operation, place.keyClass(), place.location());
        Counter known = COUNTERS.get(slot);
        if (known != null) {
            return known;
        }
        Slot counted = COUNTERS.size() < MOST_COUNTERS ? slot : new Slot(operation, place.keyClass(), "");
        return COUNTERS.computeIfAbsent(counted, Counter::new);
    }

    private static boolean isWrite(String operation) {
        return "PutObject".equals(operation)
                || "CopyObject".equals(operation)
                || "CompleteMultipartUpload".equals(operation);
    }

    /** Returns the key of a request, the prefix of a listing, or the first key of a bulk delete. */
    private static String key(SdkRequest request) {
        return field(request, "Key")
                .or(() -> field(request, "Prefix"))
                .or(() -> field(request, "DestinationKey"))
                .or(() -> request.getValueForField("Delete", Delete.class)
                        .filter(delete -> !delete.objects().isEmpty())
                        .map(delete -> delete.objects().get(0).key()))
                .orElse("");
    }

    private static Optional<String> field(SdkRequest request, String name) {
        return request.getValueForField(name, String.class);
    }

    private static long length(Optional<String> header) {
        try {
            return header.isPresent() ? Long.parseLong(header.get()) : 0;
        } catch (NumberFormatException strange) {
            return 0;
        }
    }

    /**
     * Stores a query's request counts at the ends of its batches.
     *
     * <p>A batch begins when its offsets are sent to the store, and ends when the store has confirmed the batch's entry
     * in the log of commits. If the query's checkpoint is on the local disk, the caller reports the ends. Because the
     * counts at these times are stored, a batch's count is exact at any later time, if the application has only one
     * JVM.
     */
    static final class BatchMarks {
        /** The number of batches with stored counts: more than the batches whose reports Spark stores. */
        private static final int KEPT = 128;

        private final List<String> locations;
        private final Map<Long, Collection<RequestCount>> commits = new LinkedHashMap<>();
        private final Collection<RequestCount> initial;
        private Collection<RequestCount> start;

        BatchMarks(List<String> locations) {
            this.locations = locations;
            this.initial = RequestMeter.below(locations);
        }

        synchronized void offsetsToBeWritten() {
            if (start == null) {
                start = RequestMeter.below(locations);
            }
        }

        synchronized void committed(String key) {
            String name = key.substring(key.lastIndexOf('/') + 1);
            requireStart();
            if (!name.isEmpty() && name.chars().allMatch(each -> each >= '0' && each <= '9')) {
                ended(Long.parseLong(name));
            }
        }

        synchronized void ended(long batch) {
            requireStart();
            commits.putIfAbsent(batch, RequestMeter.below(locations));
            if (commits.size() > KEPT) {
                commits.remove(commits.keySet().iterator().next());
            }
        }

        private void requireStart() {
            if (start == null) {
                // The offsets were not written in this run: the query's last run wrote them, or the checkpoint is on
                // the local disk.
                start = initial;
            }
        }

        synchronized Collection<RequestCount> start() {
            return start;
        }

        synchronized Collection<RequestCount> atCommit(long batch) {
            return commits.get(batch);
        }
    }
}
