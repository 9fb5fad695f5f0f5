package io.lakefeed.sink;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/** Keeps the contents of recently written files, up to a number of bytes; the oldest are dropped first. */
final class RecentFiles {
    private final Map<String, byte[]> files = new LinkedHashMap<>();
    private final long most;
    private long bytes;

    RecentFiles(long most) {
        this.most = most;
    }

    /** Returns the size of the largest file that is worth keeping. */
    long largest() {
        return most / 4;
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
