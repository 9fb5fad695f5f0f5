"""The Spark session, the JVM and the jars of a session, and the translation of Spark's errors."""
