package io.lakefeed.upsert;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.unsafe.types.UTF8String;

/** Keys with the places of their rows, as a task returns them: an array for each field of an entry. */
final class KeyEntries implements Serializable {
    private static final long serialVersionUID = 1L;
    /** The value of {@link #file} for a key that has no row. */
    static final int NO_ROW = -1;
    /** The value of {@link #source} for a row that no record has written. */
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

    final List<String> files = new ArrayList<>();
    final List<Source> sources = new ArrayList<>();

    /** Whether one of the rows has no key. */
    boolean lacksKey;

    int size;
    long[] high = new long[SMALLEST];
    int[] low = new int[SMALLEST];
    /** For each entry, an index into {@link #files}. */
    int[] file = new int[SMALLEST];

    int[] position = new int[SMALLEST];
    /** For each entry, an index into {@link #sources}. */
    int[] source = new int[SMALLEST];

    long[] offset = new long[SMALLEST];
    boolean[] deleted = new boolean[SMALLEST];
    /** For each entry, {@link #width} numbers of its {@link KeyOrder}. */
    long[] order;

    final int width;

    private transient Map<String, Integer> numbers;
    private transient UTF8String topic;
    private transient int partition;
    private transient int lastSource;

    KeyEntries(int width) {
        this.width = width;
        order = new long[SMALLEST * width];
    }

    void add(
            long highBits,
            int lowBits,
            int inFile,
            int at,
            int fromSource,
            long[] inOrder,
            long recordOffset,
            boolean deletes) {
        if (size == high.length) {
            grow(size * 2);
        }
        high[size] = highBits;
        low[size] = lowBits;
        file[size] = inFile;
        position[size] = at;
        source[size] = fromSource;
        System.arraycopy(inOrder, 0, order, size * width, width);
        offset[size] = recordOffset;
        deleted[size++] = deletes;
    }

    private void grow(int capacity) {
        high = Arrays.copyOf(high, capacity);
        low = Arrays.copyOf(low, capacity);
        file = Arrays.copyOf(file, capacity);
        position = Arrays.copyOf(position, capacity);
        source = Arrays.copyOf(source, capacity);
        offset = Arrays.copyOf(offset, capacity);
        deleted = Arrays.copyOf(deleted, capacity);
        order = Arrays.copyOf(order, capacity * width);
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
            }
            topic = ofTopic.clone();
            partition = ofPartition;
        }
        return lastSource;
    }

    /** Cuts the arrays to the number of entries, before they are sent to the driver. */
    KeyEntries trimmed() {
        grow(size);
        return this;
    }
}
