/** Checks a batch before it becomes visible: its outcomes, and that it begins where the last batch ended. */
package io.lakefeed.commit;
