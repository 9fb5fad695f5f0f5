package io.lakefeed.commit;

import io.lakefeed.FunctionsOnly;

/** Provides {@code <catalog>.outcome_<commit id>}, which counts the records of the open batch of this commit. */
public final class OutcomeCatalog extends FunctionsOnly {
    private static final String PREFIX = "outcome_";

    @Override
    protected Binding function(String function) {
        Outcomes outcomes = function.startsWith(PREFIX) ? Outcomes.of(function.substring(PREFIX.length())) : null;
        return outcomes == null ? null : arguments -> new OutcomeFunction(outcomes);
    }
}
