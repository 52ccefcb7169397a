"""Topics → Spark: which offsets a read has, and reading them in tasks."""
