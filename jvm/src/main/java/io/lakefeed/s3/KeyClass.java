package io.lakefeed.s3;

/** The purpose of an S3 key, derived from its name. */
public enum KeyClass {
    DATA,
    /** The metadata directory of an Iceberg table: metadata files, manifests, manifest lists. */
    METADATA,
    OFFSETS,
    COMMITS,
    /** {@code _spark_metadata}, the log of Spark's file sink. */
    SINK_LOG,
    STATE,
    /** The files of which a checkpoint has one set: its metadata, its sources, its owner. */
    CHECKPOINT,
    /** All other keys, such as keys of listings of directories and of requests about buckets. */
    OTHER;

    /** The class of a key, and the location {@code bucket/path} of the table or checkpoint that the key belongs to. */
    record Place(KeyClass keyClass, String location) {}

    static Place place(String bucket, String key) {
        int slash = key.lastIndexOf('/');
        String name = key.substring(slash + 1);
        String folder = slash < 0 ? "" : key.substring(0, slash);
        int log = segment(key, "_spark_metadata");
        if (log >= 0) {
            return new Place(SINK_LOG, location(bucket, key, log));
        }
        // The key is a log's directory, without a slash at its end, or an entry or a temporary file in a log.
        String directory = name.equals("offsets") || name.equals("commits") ? key : folder;
        if (directory == key || name.isEmpty() || name.charAt(0) == '.' || isDigit(name, 0)) {
            if (endsWithSegment(directory, "offsets")) {
                return new Place(OFFSETS, location(bucket, directory, directory.length() - 7));
            }
            if (endsWithSegment(directory, "commits")) {
                return new Place(COMMITS, location(bucket, directory, directory.length() - 7));
            }
        }
        int state = segment(key, "state");
        if (state >= 0 && (isDigit(key, state + 6) || key.length() <= state + 6)) {
            return new Place(STATE, location(bucket, key, state));
        }
        int sources = segment(key, "sources");
        if (sources >= 0 && (isDigit(key, sources + 8) || key.length() <= sources + 8)) {
            return new Place(CHECKPOINT, location(bucket, key, sources));
        }
        if (name.equals("metadata") || name.equals("lakefeed.json")) {
            return new Place(CHECKPOINT, location(bucket, key, slash + 1));
        }
        if (endsWithSegment(folder, "metadata")) {
            return new Place(METADATA, location(bucket, folder, folder.length() - 8));
        }
        int data = segment(key, "data");
        if (data >= 0 && !name.isEmpty()) {
            return new Place(DATA, location(bucket, key, data));
        }
        if (name.startsWith("part-")) {
            return new Place(DATA, location(bucket, folder, withoutPartitions(folder)));
        }
        return new Place(OTHER, location(bucket, folder, folder.length()));
    }

    /** Returns the index, in the key, of the last directory with this name; -1 without such a directory. */
    private static int segment(String key, String name) {
        for (int at = key.lastIndexOf(name); at >= 0; at = key.lastIndexOf(name, at - 1)) {
            int end = at + name.length();
            if ((at == 0 || key.charAt(at - 1) == '/') && (end == key.length() || key.charAt(end) == '/')) {
                return at;
            }
        }
        return -1;
    }

    private static boolean endsWithSegment(String folder, String name) {
        int at = folder.length() - name.length();
        return at >= 0 && folder.endsWith(name) && (at == 0 || folder.charAt(at - 1) == '/');
    }

    /** Returns the length of a folder's path without the {@code column=value} directories at its end. */
    private static int withoutPartitions(String folder) {
        int end = folder.length();
        while (end > 0) {
            int slash = folder.lastIndexOf('/', end - 1);
            if (folder.substring(slash + 1, end).indexOf('=') < 0) {
                return end;
            }
            end = Math.max(slash, 0);
        }
        return end;
    }

    private static boolean isDigit(String text, int at) {
        return at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9';
    }

    private static String location(String bucket, String key, int end) {
        int length = end > 0 && end <= key.length() && key.charAt(end - 1) == '/' ? end - 1 : end;
        return length <= 0 ? bucket : bucket + "/" + key.substring(0, length);
    }
}
