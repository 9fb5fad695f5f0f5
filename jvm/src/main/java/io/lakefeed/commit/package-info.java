/**
 * Checks, before a batch becomes visible, the outcomes of its records, and that it begins where the last batch ended.
 */
package io.lakefeed.commit;
