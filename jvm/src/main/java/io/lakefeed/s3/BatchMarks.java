package io.lakefeed.s3;

import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A query's request counts between its batches.
 *
 * <p>A batch begins when its offsets are sent and ends when the store has confirmed its entry in the log of commits.
 * The meter sees both requests on the query's own thread. A query whose checkpoint is on the local disk says itself when
 * a batch has ended. So with one JVM the count of a batch is exact at any later time.
 */
final class BatchMarks {
    /** More finished batches than Spark keeps reports of. */
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
            // An earlier run wrote the offsets of this batch, or they are on the local disk.
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
