/** The main class of an application jar, with which a cluster runs lakefeed without an installation. */
package io.lakefeed.submit;
