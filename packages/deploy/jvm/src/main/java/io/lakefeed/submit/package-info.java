/** The main class of an application jar, with which a cluster runs a driver that it has nothing of beforehand. */
package io.lakefeed.submit;
