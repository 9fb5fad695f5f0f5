package io.lakefeed.upsert;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.unsafe.types.UTF8String;

/** Keys and the places of their rows, as a task returns them: one array for each field of an entry. */
final class KeyEntries implements Serializable {
    private static final long serialVersionUID = 1L;
    /** The value of {@link #file} for a key without a row. */
    static final int NO_ROW = -1;
    /** The value of {@link #source} for a row that does not come from a record. */
    static final int NO_PARTITION = -1;

    private static final int SMALLEST = 1024;

    /** A partition of a topic; partition -1 stands for null. */
    record Source(String topic, int partition) implements Serializable, Comparable<Source> {
        @Override
        public int compareTo(Source other) {
            int order = topic.compareTo(other.topic);
            return order != 0 ? order : Integer.compare(partition, other.partition);
        }
    }

    /** The 96 bits of a key, and the index of its record's partition in {@link #sources}. */
    record Key(long high, int low, int source) {}

    /** A number per entry. The array is null as long as the number is the same for all entries. */
    static final class Numbers implements Serializable {
        private static final long serialVersionUID = 1L;
        private int same;
        private int[] each;

        int get(int at) {
            return each == null ? same : each[at];
        }

        private void set(int at, int number, int capacity) {
            same = at == 0 ? number : same;
            if (each == null && number != same) {
                each = new int[capacity];
                Arrays.fill(each, 0, at, same);
            }
            if (each != null) {
                each[at] = number;
            }
        }

        private void grow(int capacity) {
            each = each == null ? null : Arrays.copyOf(each, capacity);
        }
    }

    final List<String> files = new ArrayList<>();
    final List<Source> sources = new ArrayList<>();
    long[] greatest = {};

    /** Why the index cannot contain the rows; null if it can. */
    String refusal;

    int size;
    long[] high = new long[SMALLEST];
    final Numbers low = new Numbers();
    /** For each entry, an index into {@link #files}. */
    final Numbers file = new Numbers();

    int[] position = new int[SMALLEST];
    /** For each entry, an index into {@link #sources}. */
    final Numbers source = new Numbers();
    /** For each entry, 1 if it deletes its key's row. */
    final Numbers deleted = new Numbers();

    /** The offset of each entry's record; null if the entries are rows of the table, which need no offsets. */
    long[] offset;
    /** For each entry, {@link #width} numbers of {@link KeyOrder}. */
    long[] order;

    final int width;

    private transient Map<String, Integer> numbers;
    private transient UTF8String topic;
    private transient int partition;
    private transient int lastSource;

    KeyEntries(int width, boolean areChanges) {
        this.width = width;
        order = new long[SMALLEST * width];
        offset = areChanges ? new long[SMALLEST] : null;
    }

    /** Adds an entry for the row at a position in a file, or for a key without a row. */
    void add(Key key, int inFile, int at, long[] inOrder, long recordOffset, boolean deletes) {
        if (size == high.length) {
            grow(size * 2);
        }
        high[size] = key.high;
        low.set(size, key.low, high.length);
        file.set(size, inFile, high.length);
        position[size] = at;
        source.set(size, key.source, high.length);
        deleted.set(size, deletes ? 1 : 0, high.length);
        System.arraycopy(inOrder, 0, order, size * width, width);
        if (offset != null) {
            offset[size] = recordOffset;
        }
        if (key.source >= 0) {
            greatest[key.source] = Math.max(greatest[key.source], recordOffset);
        }
        size++;
    }

    private void grow(int capacity) {
        high = Arrays.copyOf(high, capacity);
        position = Arrays.copyOf(position, capacity);
        order = Arrays.copyOf(order, capacity * width);
        offset = offset == null ? null : Arrays.copyOf(offset, capacity);
        List.of(low, file, source, deleted).forEach(each -> each.grow(capacity));
    }

    /** Returns the index of a file in {@link #files}; adds a new file. */
    int fileNumber(String location) {
        if (numbers == null) {
            numbers = new HashMap<>();
        }
        return numbers.computeIfAbsent(location, each -> {
            files.add(each);
            return files.size() - 1;
        });
    }

    /** Returns the index of a topic's partition in {@link #sources}; adds a new partition. */
    int sourceNumber(UTF8String ofTopic, int ofPartition) {
        if (topic == null || partition != ofPartition || !topic.equals(ofTopic)) {
            Source found = new Source(ofTopic.toString(), ofPartition);
            lastSource = sources.indexOf(found);
            if (lastSource < 0) {
                lastSource = sources.size();
                sources.add(found);
                greatest = Arrays.copyOf(greatest, sources.size());
                greatest[lastSource] = -1;
            }
            topic = ofTopic.clone();
            partition = ofPartition;
        }
        return lastSource;
    }

    /** Shortens the arrays to the number of entries, before they are sent to the driver. */
    KeyEntries trimmed() {
        grow(size);
        return this;
    }
}
