package io.lakefeed.upsert;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakefeed.upsert.FileRewriter.Stretch;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.shaded.org.roaringbitmap.RoaringBitmap;

/** The places of all keys' rows in one snapshot: data files, positions in them, and partitions of the records. */
final class KeyPlaces {
    final KeyTable table;
    final List<IndexedFile> files = new ArrayList<>();
    private final Map<String, Integer> numbers = new HashMap<>();
    final List<KeyEntries.Source> sources = new ArrayList<>();
    /** By the number of a topic's partition: the greatest offset of the records whose rows the table has. */
    final List<Long> greatest = new ArrayList<>();

    private final Runnable requireRoom;

    /**
     * Creates an empty object.
     *
     * @param width the number of columns that order the changes of a key
     * @param requireRoom called with the memory in bytes; throws an exception if it is too much
     */
    KeyPlaces(int width, Runnable requireRoom) {
        table = new KeyTable(width);
        this.requireRoom = requireRoom;
    }

    void clear() {
        table.clear();
        files.clear();
        numbers.clear();
        sources.clear();
        greatest.clear();
    }

    /** Returns whether a batch begins, in a partition, at or before a record whose row the table has. */
    boolean haveRecordsFrom(JsonNode starts) {
        for (int at = 0; at < sources.size(); at++) {
            KeyEntries.Source source = sources.get(at);
            JsonNode start = starts.path(source.topic()).path(String.valueOf(source.partition()));
            if (start.isNumber() && start.asLong() <= greatest.get(at)) {
                return true;
            }
        }
        return false;
    }

    /** Adds the keys of all files. */
    void fill(KeyReader reader, long rows) {
        List<FileScanTask> tasks = reader.plan();
        tasks.forEach(this::add);
        table.expect(rows);
        reader.read(tasks, entries -> put(entries, false));
    }

    /** Updates the places to the files of another snapshot; returns false if that snapshot has other rows. */
    boolean follow(KeyReader reader) {
        Map<String, FileScanTask> now = new LinkedHashMap<>();
        reader.plan().forEach(task -> now.put(task.file().location(), task));
        List<FileScanTask> added = new ArrayList<>();
        now.forEach((location, task) -> {
            Integer number = numbers.get(location);
            if (number == null) {
                add(task);
                added.add(task);
            } else {
                files.get(number).follow(task.deletes());
            }
        });
        boolean[] same = {true};
        reader.read(added, entries -> same[0] &= put(entries, true));
        for (Map.Entry<String, Integer> known : List.copyOf(numbers.entrySet())) {
            if (!now.containsKey(known.getKey())) {
                same[0] &= files.get(known.getValue()).live == 0;
                files.set(known.getValue(), null);
                numbers.remove(known.getKey());
            }
        }
        return same[0];
    }

    private void add(FileScanTask task) {
        add(new IndexedFile(task.file().copyWithoutStats(), task.deletes()));
    }

    /** Returns the number of a data file; null if the index does not have the file. */
    Integer number(String location) {
        return numbers.get(location);
    }

    int add(IndexedFile file) {
        numbers.put(file.file().location(), files.size());
        files.add(file);
        return files.size() - 1;
    }

    /**
     * Adds keys that were read from the table, or sets the new places of known keys.
     *
     * @param known whether the index must already have all these keys, with places in other files
     * @return false if {@code known} is set, and the index lacks one of the keys
     */
    private boolean put(KeyEntries read, boolean known) {
        if (read.refusal != null) {
            throw new NotIndexed(read.refusal);
        }
        int[] ofFile = read.files.stream().mapToInt(numbers::get).toArray();
        int[] ofSource = numbers(read);
        for (int at = 0; at < read.size; at++) {
            int source = read.source.get(at);
            boolean found = place(
                    read, at, ofFile[read.file.get(at)], source == KeyEntries.NO_PARTITION ? source : ofSource[source]);
            if (found && !known) {
                throw new NotIndexed("a key has two rows in the table");
            }
            if (!found && known) {
                return false;
            }
        }
        see(read, ofSource);
        requireRoom.run();
        return true;
    }

    /** Sets the place of a key's row to the place in an entry; returns whether the index had the key. */
    boolean place(KeyEntries entries, int at, int file, int source) {
        int before = table.put(entries.high[at], entries.low.get(at), file, entries.position[at], source);
        if (before >= 0) {
            files.get(before).live--;
        }
        table.order(entries, at);
        files.get(file).live++;
        return before >= 0;
    }

    /** Updates the greatest offsets; {@code ofSource} has the numbers of the entries' partitions. */
    void see(KeyEntries entries, int[] ofSource) {
        for (int at = 0; at < ofSource.length; at++) {
            greatest.set(ofSource[at], Math.max(greatest.get(ofSource[at]), entries.greatest[at]));
        }
    }

    /**
     * Updates the places of the keys whose files were rewritten.
     *
     * @param old the old files, with the positions of the rows that were not copied
     * @param stretches the runs of copied rows, by the location of the old file and the position in it
     * @return false if a key's row is not in a new file
     */
    boolean move(Map<IndexedFile, RoaringBitmap> old, Map<String, NavigableMap<Integer, Stretch>> stretches) {
        boolean isRight = table.move((file, position) -> {
            IndexedFile from = files.get(file);
            RoaringBitmap gone = old.get(from);
            if (gone == null) {
                return KeyTable.STAYS;
            }
            NavigableMap<Integer, Stretch> ofFile = stretches.getOrDefault(from.file().location(), Collections.emptyNavigableMap());
            Map.Entry<Integer, Stretch> found = ofFile.floorEntry(position);
            if (found == null || position >= found.getValue().end || gone.contains(position)) {
                return KeyTable.LOST;
            }
            Stretch stretch = found.getValue();
            int number = numbers.get(stretch.now);
            files.get(number).live++;
            int at = stretch.at + position - stretch.from - gone.rank(position) + gone.rank(stretch.from);
            return KeyTable.place(number, at);
        });
        for (IndexedFile each : old.keySet()) {
            Integer number = numbers.remove(each.file().location());
            if (number != null) {
                files.set(number, null);
            }
        }
        return isRight;
    }

    int[] numbers(KeyEntries entries) {
        return entries.sources.stream()
                .mapToInt(source -> {
                    int number = sources.indexOf(source);
                    if (number < 0) {
                        number = sources.size();
                        if (number > Short.MAX_VALUE) {
                            throw new NotIndexed("its rows are from more than " + Short.MAX_VALUE + " partitions");
                        }
                        sources.add(source);
                        greatest.add(-1L);
                    }
                    return number;
                })
                .toArray();
    }
}
