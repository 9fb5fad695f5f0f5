package io.lakefeed.commit;

import org.apache.iceberg.exceptions.ValidationException;

/**
 * A commit that must not happen; nothing of it becomes visible, and its files are removed.
 *
 * <p>A ValidationException since Iceberg then neither tries again nor keeps the files.
 */
public final class BatchRefused extends ValidationException {
    private static final long serialVersionUID = 1L;
    /** What the user must see of it begins with this; Python recognises it. */
    static final String PREFIX = "lakefeed refuses the commit: ";

    BatchRefused(String reason) {
        super("%s", PREFIX + reason);
    }
}
