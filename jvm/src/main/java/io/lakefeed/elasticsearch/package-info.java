/** A feed's rows as documents of Elasticsearch or OpenSearch: written by the tasks, in bulk requests. */
package io.lakefeed.elasticsearch;
