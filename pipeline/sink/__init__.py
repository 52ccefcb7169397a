"""Write Spark's rows to topics: one Kafka transaction per micro-batch or batch write, one task per partition."""
