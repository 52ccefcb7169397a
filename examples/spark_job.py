"""A Spark job: sum orders per customer from one topic to another, exactly once, however often the job is killed.

Shows   The streaming source and sink of `oncelog.pipeline` with a SQL aggregation between them. Each micro-batch is one
        Kafka transaction, and the checkpoint records where the next micro-batch begins.
Run     pip install 'oncelog[pipeline]'            # and Java 17 or newer
        oncelog serve --data-dir data --listen 127.0.0.1:9092
        oncelog topic create orders --partitions 3
        echo '{"customer": "alice", "cents": 1260}' | oncelog produce orders
        python examples/spark_job.py checkpoint    # processes all new orders and ends; run it again for more
        oncelog consume spending --from-beginning
"""

from __future__ import annotations

import os
import sys

from oncelog.pipeline import spark_session, write_stream
from pyspark.sql import functions as sql

BOOTSTRAP = os.environ.get("ONCELOG_BOOTSTRAP", "127.0.0.1:9092")


def main(checkpoint: str) -> None:
    """Process the records that are in the topic now, then return. `checkpoint` is the checkpoint's directory."""
    spark = spark_session("local[2]", settings={"spark.sql.shuffle.partitions": "2"})
    kafka = {"kafka.bootstrap.servers": BOOTSTRAP}
    source = spark.readStream.format("oncelog").options(**kafka, subscribe="orders", startingOffsets="earliest").load()

    fail_fast = {"mode": "FAILFAST"}  # a record that is not JSON fails the job; PERMISSIVE turns it into a row of nulls
    order = sql.from_json(source["value"].cast("string"), "customer STRING, cents BIGINT", fail_fast)
    spending = (
        source.select(order.alias("order"))
        .groupBy("order.customer")
        .agg(sql.sum("order.cents").alias("cents"), sql.count("*").alias("orders"))
        .select(
            sql.col("customer").cast("binary").alias("key"),
            sql.to_json(sql.struct("customer", "cents", "orders")).alias("value"),
        )
    )
    query = write_stream(
        spending,
        {**kafka, "topic": "spending", "checkpointLocation": checkpoint},
        output_mode="update",  # only a customer's last record counts: a compacted topic keeps this record
    )
    query.trigger(availableNow=True).start().awaitTermination()  # without the trigger the job runs until it is stopped
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
