"""Read topics into Spark: find the range of offsets to read, and read it in tasks."""
