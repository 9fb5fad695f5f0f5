package io.lakefeed.upsert;

import java.util.Arrays;

/**
 * A hash table from keys to the places of their rows, in arrays of primitives: 18 bytes for each slot, 4 more if the
 * keys are not single whole numbers, and 8 for each number that orders a key's changes.
 *
 * <p>A key is stored as 96 bits ({@link KeyHash}). The slots are in {@value #SEGMENTS} segments. Only one segment grows
 * at a time, so that growing needs little memory. Not thread safe.
 */
final class KeyTable {
    private static final int SEGMENTS = 1024;
    private static final int SMALLEST = 16;
    private static final int BYTES_OF_PLACE = 18;
    /** The share of a segment's slots above which the segment grows. */
    private static final double FULLEST = 0.8;

    /** The spare room of a segment, because some segments get more keys than the average. */
    private static final double ROOM_FOR_CHANCE = 1.02;

    private static final double GROWTH = 1.25;

    private final Segment[] segments = new Segment[SEGMENTS];
    private final int width;
    private int size;
    private long slots;
    /** The number of slots of a new segment. */
    private int smallest = SMALLEST;
    /** Whether there is a key whose low bits are not 0. */
    private boolean wide;
    /** The result of {@link #find}: a segment, and a slot in it. */
    private Segment segment;

    private int slot;

    private static final class Segment {
        private long[] high;
        /** The low bits of the keys; null as long as all are 0. */
        private int[] low;
        /** The number of the file plus 1; 0 for an empty slot. */
        private int[] file;

        private int[] position;
        private short[] partition;
        private long[] order;
        private int size;

        Segment(int capacity, int width) {
            high = new long[capacity];
            file = new int[capacity];
            position = new int[capacity];
            partition = new short[capacity];
            order = new long[capacity * width];
        }

        /** Returns the slot at which a search for the key begins, from key bits that do not choose the segment. */
        private int home(long key) {
            return (int) (((key >>> 22 & 0xFFFFFFFFL) * file.length) >>> 32);
        }

        private int low(int at) {
            return low == null ? 0 : low[at];
        }

        private int next(int at) {
            return at + 1 == file.length ? 0 : at + 1;
        }

        /** Returns the slot of a key, or the empty slot for a new key. */
        private int slot(long highBits, int lowBits) {
            int at = home(highBits);
            while (file[at] != 0 && (high[at] != highBits || low(at) != lowBits)) {
                at = next(at);
            }
            return at;
        }

        private void set(int at, long highBits, int lowBits, int ofFile, int at0, short ofPartition) {
            high[at] = highBits;
            if (low != null || lowBits != 0) {
                low = low == null ? new int[file.length] : low;
                low[at] = lowBits;
            }
            file[at] = ofFile;
            position[at] = at0;
            partition[at] = ofPartition;
        }

        private void take(Segment from, int slot, int to, int width) {
            set(to, from.high[slot], from.low(slot), from.file[slot], from.position[slot], from.partition[slot]);
            System.arraycopy(from.order, slot * width, order, to * width, width);
        }
    }

    /** Creates an empty table with {@code width} numbers per key, which order the key's changes. */
    KeyTable(int width) {
        this.width = width;
    }

    int size() {
        return size;
    }

    int bytesOfSlot() {
        return BYTES_OF_PLACE + width * Long.BYTES + (wide ? Integer.BYTES : 0);
    }

    long bytes() {
        return slots * bytesOfSlot();
    }

    /** Makes room in an empty table for this many keys, so that the table need not grow. */
    void expect(long keys) {
        smallest = SMALLEST + (int) (keys * ROOM_FOR_CHANCE / FULLEST / SEGMENTS);
    }

    /** Returns whether a key exists; then {@link #file}, {@link #position} and {@link #partition} describe its row. */
    boolean find(long high, int low) {
        segment = segments[(int) (high >>> 54)];
        if (segment == null) {
            return false;
        }
        slot = segment.slot(high, low);
        return segment.file[slot] != 0;
    }

    int file() {
        return segment.file[slot] - 1;
    }

    int position() {
        return segment.position[slot];
    }

    int partition() {
        return segment.partition[slot];
    }

    /** Returns a copy of the numbers that order the key's changes. */
    long[] order() {
        return Arrays.copyOfRange(segment.order, slot * width, slot * width + width);
    }

    /** Compares an entry's numbers with the numbers of the key that was found. */
    int compare(KeyEntries entries, int at) {
        return Arrays.compare(
                entries.order, at * width, at * width + width, segment.order, slot * width, slot * width + width);
    }

    /** Sets the numbers of the key that was just found or added to the numbers of an entry. */
    void order(KeyEntries entries, int at) {
        System.arraycopy(entries.order, at * width, segment.order, slot * width, width);
    }

    /** Adds a key with the place of its row, or changes the place; returns the file of the previous place, or -1. */
    int put(long high, int low, int file, int position, int partition) {
        if (!find(high, low)) {
            int number = (int) (high >>> 54);
            if (segment == null) {
                segment = new Segment(smallest, width);
                slots += smallest;
            }
            segment = segment.size < segment.file.length * FULLEST ? segment : grown(segment);
            segments[number] = segment;
            slot = segment.slot(high, low);
            segment.size++;
            size++;
            wide |= low != 0;
        }
        int before = file();
        segment.set(slot, high, low, file + 1, position, (short) partition);
        return before;
    }

    private Segment grown(Segment old) {
        Segment larger = new Segment((int) (old.file.length * GROWTH) + 1, width);
        for (int at = 0; at < old.file.length; at++) {
            if (old.file[at] != 0) {
                larger.take(old, at, larger.slot(old.high[at], old.low(at)), width);
            }
        }
        larger.size = old.size;
        slots += larger.file.length - old.file.length;
        return larger;
    }

    /** Removes a key; moves the keys after it up, because a search ends at an empty slot. */
    void remove(long high, int low) {
        if (!find(high, low)) {
            return;
        }
        Segment own = segment;
        int empty = slot;
        for (int at = own.next(empty); own.file[at] != 0; at = own.next(at)) {
            int home = own.home(own.high[at]);
            boolean stays = empty <= at ? empty < home && home <= at : empty < home || home <= at;
            if (!stays) {
                own.take(own, at, empty, width);
                empty = at;
            }
        }
        own.file[empty] = 0;
        own.size--;
        size--;
    }

    /** The result of a {@link Move} for a row that stays at its place. */
    static final long STAYS = -1;
    /** The result of a {@link Move} for a row that it does not find. */
    static final long LOST = -2;

    /** Returns the new place of a row. */
    interface Move {
        long of(int file, int position);
    }

    static long place(int file, int position) {
        return (long) file << Integer.SIZE | position;
    }

    /** Changes the places of rows; returns false if one of the rows was not found. */
    boolean move(Move rows) {
        boolean found = true;
        for (Segment each : segments) {
            for (int at = 0; each != null && at < each.file.length; at++) {
                long to = each.file[at] == 0 ? STAYS : rows.of(each.file[at] - 1, each.position[at]);
                found &= to != LOST;
                if (to >= 0) {
                    each.file[at] = (int) (to >>> Integer.SIZE) + 1;
                    each.position[at] = (int) to;
                }
            }
        }
        return found;
    }

    void clear() {
        Arrays.fill(segments, null);
        size = 0;
        slots = 0;
        smallest = SMALLEST;
        wide = false;
    }
}
