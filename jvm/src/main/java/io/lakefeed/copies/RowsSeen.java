package io.lakefeed.copies;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.roaringbitmap.longlong.Roaring64NavigableMap;

/**
 * The rows of one batch of one writer, in one partition of the topic. A row is stored as its offset in the source, in a
 * bitmap, or without such an offset as a digest of 128 bits. The highest offset of each source partition, over all
 * batches of the writer, is stored, too.
 */
final class RowsSeen {
    private final Map<String, Roaring64NavigableMap> offsets = new HashMap<>();
    private final Set<UUID> digests = new HashSet<>();
    private final Map<String, Long> highest;

    private RowsSeen(Map<String, Long> highest) {
        this.highest = highest;
    }

    static RowsSeen first() {
        return new RowsSeen(new HashMap<>());
    }

    RowsSeen other() {
        return new RowsSeen(highest);
    }

    /** Returns whether a batch had this offset of the source partition, or a higher one. */
    boolean reached(String partition, long offset) {
        return highest.getOrDefault(partition, -1L) >= offset;
    }

    boolean add(String partition, long offset) {
        Roaring64NavigableMap seen = offsets.computeIfAbsent(partition, any -> new Roaring64NavigableMap());
        if (seen.contains(offset)) {
            return false;
        }
        seen.addLong(offset);
        highest.merge(partition, offset, Math::max);
        return true;
    }

    boolean add(UUID digest) {
        return digests.add(digest);
    }

    /** Returns the bytes of these rows and their batch number, which {@link #read} reads. */
    byte[] write(long batch) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (DataOutputStream out = new DataOutputStream(bytes)) {
            out.writeLong(batch);
            out.writeInt(offsets.size());
            for (Map.Entry<String, Roaring64NavigableMap> each : offsets.entrySet()) {
                out.writeUTF(each.getKey());
                each.getValue().runOptimize();
                each.getValue().serializePortable(out);
            }
            out.writeInt(digests.size());
            for (UUID each : digests) {
                out.writeLong(each.getMostSignificantBits());
                out.writeLong(each.getLeastSignificantBits());
            }
            out.writeInt(highest.size());
            for (Map.Entry<String, Long> each : highest.entrySet()) {
                out.writeUTF(each.getKey());
                out.writeLong(each.getValue());
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return bytes.toByteArray();
    }

    static RowsSeen read(byte[] state) {
        RowsSeen seen = first();
        try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(state))) {
            in.readLong();
            for (int left = in.readInt(); left > 0; left--) {
                String partition = in.readUTF();
                Roaring64NavigableMap bitmap = new Roaring64NavigableMap();
                bitmap.deserializePortable(in);
                seen.offsets.put(partition, bitmap);
            }
            for (int left = in.readInt(); left > 0; left--) {
                seen.digests.add(new UUID(in.readLong(), in.readLong()));
            }
            for (int left = in.readInt(); left > 0; left--) {
                seen.highest.put(in.readUTF(), in.readLong());
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return seen;
    }

    static long batch(byte[] state) {
        return ByteBuffer.wrap(state).getLong();
    }
}
