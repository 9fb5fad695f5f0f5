/** Sets the authorities that each JVM of an application trusts, and the certificate that it sends. */
package io.lakefeed.tls;
