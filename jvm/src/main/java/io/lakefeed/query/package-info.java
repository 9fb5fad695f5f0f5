/** What a streaming query is made of, and where the batch stands that it is at work on. */
package io.lakefeed.query;
