package io.lakefeed.decode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;

class MemoryBudgetTest {
    private static final int ALLOWED = 100 * 64 + 64 * 1024 - 4 * 1024;

    private final MemoryBudget budget = new MemoryBudget();

    @Test
    void theBudgetDependsOnTheSizeOfTheRecord() {
        budget.start(100);
        budget.charge(ALLOWED);
        BadRecord exceeded = assertThrows(BadRecord.class, () -> budget.charge(1));
        assertEquals("too large when decoded: it would take more than the 71936 bytes of memory that a record of 100 bytes may take",
                exceeded.getMessage());
    }

    @Test
    void eachRecordStartsWithANewBudget() {
        budget.start(100);
        budget.charge(ALLOWED);
        budget.start(100);
        budget.charge(ALLOWED);
    }

    @Test
    void theLargestRecordHasABudget() {
        budget.start(Integer.MAX_VALUE);
        budget.charge(64L * Integer.MAX_VALUE);
    }
}
