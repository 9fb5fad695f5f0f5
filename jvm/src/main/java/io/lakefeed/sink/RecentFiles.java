package io.lakefeed.sink;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The contents of recent files, up to a total size and a number of files per folder; drops the oldest first. */
final class RecentFiles {
    private final Map<String, byte[]> files = new LinkedHashMap<>();
    private final long most;
    private final int mostOfFolder;
    private long bytes;
    /** The last file that was too large. One is enough: only the current metadata file is read repeatedly. */
    private String large;

    RecentFiles(long most) {
        this(most, Integer.MAX_VALUE);
    }

    RecentFiles(long most, int mostOfFolder) {
        this.most = most;
        this.mostOfFolder = mostOfFolder;
    }

    /** Returns the most bytes of a file whose content is stored. */
    long largest() {
        return most / 4;
    }

    /** Remembers that a file is larger than {@link #largest}, so that it is not read again just to store it. */
    synchronized void setLarge(String location) {
        large = location;
    }

    synchronized boolean isLarge(String location) {
        return location.equals(large);
    }

    synchronized void put(String location, byte[] content) {
        remove(location);
        files.put(location, content);
        bytes += content.length;
        Iterator<byte[]> eldest = files.values().iterator();
        while (bytes > most) {
            bytes -= eldest.next().length;
            eldest.remove();
        }
        dropOldestOfFolder(location.substring(0, location.lastIndexOf('/') + 1));
    }

    private void dropOldestOfFolder(String folder) {
        if (mostOfFolder == Integer.MAX_VALUE) {
            return;
        }
        List<String> ofFolder = files.keySet().stream()
                .filter(each -> each.startsWith(folder) && each.indexOf('/', folder.length()) < 0)
                .toList();
        ofFolder.stream().limit(Math.max(0, ofFolder.size() - mostOfFolder)).forEach(this::remove);
    }

    synchronized byte[] get(String location) {
        return files.get(location);
    }

    synchronized void remove(String location) {
        byte[] gone = files.remove(location);
        if (gone != null) {
            bytes -= gone.length;
        }
    }

    synchronized void removeBelow(String prefix) {
        files.entrySet().removeIf(each -> {
            boolean gone = each.getKey().startsWith(prefix);
            bytes -= gone ? each.getValue().length : 0;
            return gone;
        });
    }
}
