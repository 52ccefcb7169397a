"""Benchmarks. Each module prints a table and asserts nothing. `make bench` runs the comparison with Apache Kafka."""
