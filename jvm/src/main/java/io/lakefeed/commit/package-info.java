/** What is proven about a batch before it becomes visible: what became of its records, and that it goes on where the last one ended. */
package io.lakefeed.commit;
