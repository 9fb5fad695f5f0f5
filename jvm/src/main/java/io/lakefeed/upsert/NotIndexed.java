package io.lakefeed.upsert;

/** Says why a batch has to be landed by a MERGE. */
public final class NotIndexed extends RuntimeException {
    private static final long serialVersionUID = 1L;

    NotIndexed(String why) {
        super(why);
    }
}
