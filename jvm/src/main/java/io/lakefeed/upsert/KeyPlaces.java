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

/** The places of the keys' rows in one snapshot of a table: data files, positions in them, and source partitions. */
final class KeyPlaces {
    final KeyTable table;
    final List<IndexedFile> files = new ArrayList<>();
    private final Map<String, Integer> numbers = new HashMap<>();
    final List<KeyEntries.Source> sources = new ArrayList<>();
    /** For each source, the greatest offset of the records whose rows the table has. */
    final List<Long> greatest = new ArrayList<>();

    private final Runnable requireRoom;

    /**
     * Creates an empty object.
     *
     * @param width the number of columns that order the changes of a key
     * @param requireRoom throws an exception if the places take too much memory
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

    /** Returns whether a partition of a batch begins at or before a record whose row the table has. */
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

    /** Moves the keys to the files of another snapshot; returns false if that snapshot has other rows. */
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

    /** Returns the number of a data file; null if the index does not have it. */
    Integer number(String location) {
        return numbers.get(location);
    }

    int add(IndexedFile file) {
        numbers.put(file.file().location(), files.size());
        files.add(file);
        return files.size() - 1;
    }

    /**
     * Adds keys that were read from the table, or gives known keys the place in the file that has them now.
     *
     * @param known whether the index must have all these keys already, with places in other files
     * @return false if {@code known} and one of the keys is missing in the index
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

    /** Remembers the greatest offsets of the sources, which have these numbers. */
    void see(KeyEntries entries, int[] ofSource) {
        for (int at = 0; at < ofSource.length; at++) {
            greatest.set(ofSource[at], Math.max(greatest.get(ofSource[at]), entries.greatest[at]));
        }
    }

    /**
     * Moves the keys of files that were rewritten.
     *
     * @param old the files, with the positions of the rows that are not in new files
     * @param stretches by the location of an old file, its rows by their positions
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
