"""Spark → topics: one Kafka transaction per micro-batch or batch write, each Kafka partition by one task."""
