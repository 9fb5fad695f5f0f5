package io.lakefeed.checkpoint;

import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/**
 * Remembers the entries of one of Spark's metadata logs: lists them once, and then updates the list by this JVM's own
 * writes and deletes.
 *
 * <p>This is safe because entries are written with a conditional PUT and never changed: if another query has written an
 * entry that this object does not know, the PUT of the same entry fails. Spark creates an instance for each start of a
 * query and for each reader, so no instance begins with an old list.
 */
final class LogDirectory {
    static final String OFFSETS = "offsets";
    private static final Set<String> NAMES = Set.of(OFFSETS, "commits", "_spark_metadata");
    private static final Pattern BATCH = Pattern.compile("([0-9]{1,18})(?:[.][^/]*)?");
    private static final long BLOCK = 32L << 20;

    private final Bucket bucket;
    private final Path root;
    private final int budget;
    private final Map<String, FileStatus> entries = new TreeMap<>();
    private final Map<String, byte[]> contents = new LinkedHashMap<>(16, 0.75f, true);
    private long kept;
    private boolean loaded;

    LogDirectory(Bucket bucket, Path root, int budget) {
        this.bucket = bucket;
        this.root = root;
        this.budget = budget;
    }

    /** Returns whether the directory is a metadata log: {@code offsets}, {@code commits}, {@code sources/0}, … */
    static boolean isLog(Path root) {
        return NAMES.contains(root.getName()) || isOfSource(root);
    }

    static boolean isOfSource(Path root) {
        return root.getParent() != null && root.getParent().getName().equals("sources");
    }

    /** Returns the batch id, or the version of a state file, at the start of a name; -1 without either. */
    static long batch(String name) {
        Matcher matcher = BATCH.matcher(name);
        return matcher.matches() ? Long.parseLong(matcher.group(1)) : -1;
    }

    static FileStatus status(Path path, long length, long modified) {
        return new FileStatus(length, false, 1, BLOCK, modified, path);
    }

    boolean holds(Path path) {
        return root.equals(path.getParent());
    }

    synchronized FileStatus find(String name) throws IOException {
        load();
        return entries.get(name);
    }

    synchronized List<FileStatus> all() throws IOException {
        load();
        return new ArrayList<>(entries.values());
    }

    synchronized boolean hasLater(String name) throws IOException {
        load();
        long batch = batch(name);
        return batch >= 0 && entries.keySet().stream().anyMatch(each -> batch(each) > batch);
    }

    /** Adds an entry that was written; {@code content} is null if the entry is too large to remember. */
    synchronized void written(String name, long length, byte[] content) {
        if (loaded) {
            entries.put(name, status(new Path(root, name), length, System.currentTimeMillis()));
            keep(name, content);
        }
    }

    synchronized void deleted(String name) {
        entries.remove(name);
        drop(name);
    }

    /** Forgets all entries: after a failed write, the file may or may not exist. */
    synchronized void forget() {
        loaded = false;
        entries.clear();
        contents.clear();
        kept = 0;
    }

    synchronized byte[] content(String name) {
        return contents.get(name);
    }

    synchronized void keep(String name, byte[] content) {
        drop(name);
        if (content == null || content.length > budget) {
            return;
        }
        contents.put(name, content);
        kept += content.length;
        var oldest = contents.entrySet().iterator();
        while (kept > budget) {
            kept -= oldest.next().getValue().length;
            oldest.remove();
        }
    }

    private void drop(String name) {
        byte[] old = contents.remove(name);
        kept -= old == null ? 0 : old.length;
    }

    private void load() throws IOException {
        if (loaded) {
            return;
        }
        if (!bucket.looks.shows(root).orElse(true)) {
            loaded = true;
            return;
        }
        String prefix = Bucket.prefix(root);
        Optional<List<Bucket.Item>> known = bucket.looks.below(root);
        if (known.isPresent() && known.get().stream().noneMatch(each -> each.key().indexOf('/', prefix.length()) >= 0)) {
            known.get().forEach(each -> addEntry(prefix, each));
            loaded = true;
            return;
        }
        Bucket.Listing listing = bucket.list(prefix);
        listing.objects().forEach(each -> addEntry(prefix, each));
        for (String directory : listing.directories()) {
            Path path = bucket.path(directory);
            entries.put(path.getName(), new FileStatus(0, true, 1, BLOCK, 0, path));
        }
        loaded = true;
    }

    private void addEntry(String prefix, Bucket.Item item) {
        String name = item.key().substring(prefix.length());
        if (!name.isEmpty() && !bucket.deletions.isDeleted(item.key())) {
            entries.put(name, status(new Path(root, name), item.length(), item.modified()));
        }
    }
}
