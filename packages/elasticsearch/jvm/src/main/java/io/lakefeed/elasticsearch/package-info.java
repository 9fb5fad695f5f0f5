/** Writes a feed's rows as documents of Elasticsearch or OpenSearch, in bulk requests of the tasks. */
package io.lakefeed.elasticsearch;
