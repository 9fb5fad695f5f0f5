"""The Spark session, its JVM and jars, and what its errors mean."""
