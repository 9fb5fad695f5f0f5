package io.lakefeed.upsert;

/** Reports why a batch needs a MERGE instead of the index. */
public final class NotIndexed extends RuntimeException {
    private static final long serialVersionUID = 1L;

    NotIndexed(String why) {
        super(why);
    }
}
