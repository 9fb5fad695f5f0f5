/**
 * Checks, before a batch becomes visible, the outcomes of its records, and that it begins where the last commit ended.
 */
package io.lakefeed.commit;
