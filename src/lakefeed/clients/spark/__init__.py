"""The Spark session, its JVM and jars, and the translation of its errors."""
