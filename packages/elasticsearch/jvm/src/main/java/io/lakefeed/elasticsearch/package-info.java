/** Writes a feed's rows as documents of Elasticsearch or OpenSearch: in the tasks, in bulk requests. */
package io.lakefeed.elasticsearch;
