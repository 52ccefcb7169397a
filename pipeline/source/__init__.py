"""Read topics into Spark: find out which offsets a read has, and read them in tasks."""
