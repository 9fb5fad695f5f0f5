package io.lakefeed.commit;

import org.apache.iceberg.exceptions.ValidationException;

/**
 * Reports that a commit is refused. Nothing of the commit becomes visible, and its files are removed.
 *
 * <p>The class is a ValidationException, because after one Iceberg does not retry, and removes the files.
 */
public final class BatchRefused extends ValidationException {
    private static final long serialVersionUID = 1L;
    /** The prefix by which Python recognises a refusal; users see only the text after it. */
    static final String PREFIX = "lakefeed refuses the commit: ";

    BatchRefused(String reason) {
        super("%s", PREFIX + reason);
    }
}
