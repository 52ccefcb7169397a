"""Benchmarks: each module prints a table; nothing here is asserted. `make bench` runs the one against Apache Kafka."""
