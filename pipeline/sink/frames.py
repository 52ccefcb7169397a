"""Write a frame of any shape to Kafka, repartitioned so that one task writes each Kafka partition: `write_stream`,
`write`.

A row's Kafka partition is chosen before the shuffle, from the row's content: by the column `partition`, else by Kafka's
hash of the key, else by a hash of the value. Then all rows of a Kafka partition go to one Spark task, and the
partitions of a topic are distributed evenly among the tasks.

A row must get the same partition whenever Spark computes it again. When a shuffle file is lost, Spark repeats the task
that made the file. Of the tasks that write to Kafka, it repeats only those that have not read the file yet. A row that
then went to another writing task would be written twice or not at all. The driver therefore fixes the numbers of
partitions once, for all tasks (`partition_counts.py`).

The shuffle is the price of one writer per partition. A frame that already has this layout, or only one task, can be
written with `format("oncelog")` directly.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, IntegerType

from ...client.errors import ConfigError
from ..options import BATCH, DONE, NAME, PLAN, QUERY, RUN, SinkOptions
from .checkpoint import LocalNotes, Notes, digest
from .hadoop_notes import notes_of
from .ownership import StateError, take_over
from .partition_counts import TopicPartitionCounts
from .rows import COLUMNS, RowError, check_columns, targets
from .settings import SinkSettings
from .writer import QUERY_ID

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def write_stream(
    df: DataFrame, options: Mapping[str, str], *, output_mode: str = "append", tasks: int | None = None
) -> DataStreamWriter:
    """Repartition a streaming frame, and return its writer with these options. Start it with `.trigger(...).start()`.

    `options` are those of the sink and of Spark; `checkpointLocation` is required. `tasks` is the number of Spark tasks
    that write at the same time, by default the number of the cluster's cores. Raises ConfigError for invalid options or
    columns, and KafkaError if the topics' numbers of partitions cannot be read from the cluster.

    Rows without a partition are distributed among the partitions that a topic has at the time of this call, so that a
    row gets the same partition if Spark computes it again. Partitions that are added later get such rows only after the
    next call.

    `output_mode` is append, complete or update. In two cases, Spark's batch writer writes each micro-batch: in mode
    update, because Spark refuses this mode for data sources in Python; and for a checkpoint in a remote file system,
    because only the driver can read its batch plans. The transaction, state and checks are the same as in other cases.
    But rows are then distributed among the partitions that exist when the micro-batch begins.

    `start()` makes this driver the owner of the query: it fences older drivers, and ends the transaction that a dead
    driver left open, so that readers need not wait for the first batch. It raises SupersededError if a newer driver has
    taken over a query that this process ran before.
    """
    if not df.isStreaming:
        raise ConfigError("write_stream", "is for streaming DataFrames: use write(df, options)")
    settings = SinkSettings(options, df.schema, streaming=True)
    if not settings.checkpoint:
        raise ConfigError(
            "checkpointLocation",
            "is required as an option: it identifies the query, and the sink reads Spark's batch plans from it",
        )
    notes = notes_of(df.sparkSession, settings.checkpoint)
    if output_mode != "update" and (notes is None or isinstance(notes, LocalNotes)):
        frame = repartitioned(df, options, tasks)
        writer = frame.writeStream.format(NAME).options(**options).outputMode(output_mode)
        return _taking_over(writer, settings, notes, writer.options)
    if notes is None:
        raise ConfigError(
            "output_mode",
            "update does not work with Spark Connect: use append or complete, or a session without Connect",
        )
    of_start: dict[str, str] = {}

    def write_batch(batch: DataFrame, number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        assert query is not None
        plan = _plan(notes, number, settings.checkpoint)
        mine = {**options, **of_start, QUERY: query, BATCH: str(number), PLAN: plan}
        repartitioned(batch, mine, tasks).write.format(NAME).options(**mine).mode("append").save()

    checkpoint = {name: value for name, value in options.items() if name.lower() == "checkpointlocation"}
    writer = df.writeStream.outputMode(output_mode).options(**checkpoint).foreachBatch(write_batch)
    return _taking_over(writer, settings, notes, of_start.update)


def _plan(notes: Notes, number: int, location: str) -> str:
    """Return the digest of a micro-batch's plan, as the driver reads it. Raises StateError."""
    try:
        return digest(notes, number)
    except OSError as error:
        raise StateError(f"Spark's plan of batch {number} in {location} cannot be read: {error}") from error


def _taking_over(
    writer: DataStreamWriter, settings: SinkSettings, notes: Notes | None, use: Callable[..., object]
) -> DataStreamWriter:
    """Return the writer with a `start` that first makes this driver the owner of the query.

    The new `start` passes two options of the sink to `use`: RUN, the id of this start, and DONE, the newest batch that
    is done.
    """
    start = writer.start

    def take_over_and_start(*args: Any, **options: Any) -> StreamingQuery:
        taken = take_over(settings, notes)
        use(**{RUN: taken.run, DONE: "" if taken.done is None else str(taken.done)})
        return start(*args, **options)

    writer.start = take_over_and_start  # type: ignore[method-assign]  # its own methods return itself
    return writer


def write(df: DataFrame, options: Mapping[str, str], *, tasks: int | None = None) -> None:
    """Write a batch frame in one transaction. With the option writeId, a write is skipped if it was committed before.

    Raises ConfigError and KafkaError as `write_stream` does, and the error of a failed write. After a failure, no row
    is visible.
    """
    if df.isStreaming:
        raise ConfigError("write", "is for batch frames: use write_stream(df, options)")
    SinkSettings(options, df.schema, streaming=False)
    repartitioned(df, options, tasks).write.format(NAME).options(**options).mode("append").save()


def repartitioned(df: DataFrame, options: Mapping[str, str], tasks: int | None = None) -> DataFrame:
    """Return the frame with the column `partition` set in every row, and all rows of a Kafka partition in one task.

    Raises ConfigError for invalid options or columns, and KafkaError.
    """
    topic = SinkOptions(options).topic
    check_columns(df.schema, topic, headers=False)
    by_lower = {name.lower(): name for name in df.columns}
    df = df.select(*(sf.col(by_lower[name]).alias(name) for name in COLUMNS if name in by_lower))
    # The option topic overrides the column topic.
    name = sf.lit(topic) if topic else sf.col("topic")
    df = df.withColumn("partition", _target_partition(df, options, topic))
    count = tasks or _tasks_at_once(df.sparkSession)
    task: Column = sf.pmod(sf.xxhash64(name) % sf.lit(1 << 20) + sf.col("partition"), sf.lit(count))
    return df.repartitionById(count, task.cast(IntegerType()))


def _tasks_at_once(spark: SparkSession) -> int:
    """Return the number of the cluster's cores, or with Spark Connect the number of shuffle partitions."""
    if _is_connect(spark):
        return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    return max(spark.sparkContext.defaultParallelism, 1)


def _is_connect(spark: SparkSession) -> bool:
    """Return whether the session uses Spark Connect, and so has no JVM in this process."""
    return not hasattr(spark, "sparkContext")


def _target_partition(df: DataFrame, options: Mapping[str, str], topic: str) -> Column:
    """Return the Kafka partition of each row as a column. Only columns on which it can depend are sent to Python."""
    deciding: dict[str, Column] = {} if topic else {"topic": sf.col("topic")}
    if "partition" in df.columns:
        deciding["partition"] = sf.col("partition")
    if "key" in df.columns:
        deciding["key"] = sf.col("key").cast(BinaryType())
    spread = sf.xxhash64("value")
    if named := [deciding[column].isNull() for column in ("partition", "key") if column in deciding]:
        spread = sf.when(functools.reduce(operator.and_, named), spread)
    if "key" not in df.columns or df.schema["key"].nullable:
        deciding["spread"] = spread
    decide = _Decision(topic, tuple(deciding), TopicPartitionCounts.decided(options, topic))

    def target_partition(*columns: pa.Array) -> pa.Array:
        return decide(columns)

    function = arrow_udf(target_partition, IntegerType())  # type: ignore[call-overload]  # wants the number of a kind
    column: Column = function(*deciding.values())
    return column


class _Decision:
    """A function that chooses Kafka partitions from columns: topic, partition, key and spread (a hash of the value)."""

    def __init__(self, topic: str, names: tuple[str, ...], counts: TopicPartitionCounts) -> None:
        self._topic = topic
        self._names = names
        self._counts = counts

    def __call__(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Return the partition of each row. Raises RowError."""
        deciding = dict(zip(self._names, columns, strict=True))
        rows = len(columns[0])
        key = deciding["key"] if "key" in deciding else pa.nulls(rows, pa.binary())
        given = deciding["partition"] if "partition" in deciding else pa.nulls(rows, pa.int32())
        spread = np.zeros(rows, np.int64)
        if "spread" in deciding:
            spread = pc.fill_null(deciding["spread"], 0).to_numpy() & np.int64(2**63 - 1)
        if self._topic:
            return pa.array(self._named(self._topic, key, given, spread))
        topic = deciding["topic"]
        if topic.null_count:
            raise RowError("the column topic is null in a row: give each row a topic, or set the option topic")
        distinct = pc.unique(topic).to_pylist()
        if len(distinct) == 1:
            return pa.array(self._named(distinct[0], key, given, spread))
        partitions = np.empty(rows, np.int32)
        for name in distinct:
            indexes = pc.indices_nonzero(pc.equal(topic, name))
            index = indexes.to_numpy()
            partitions[index] = self._named(name, key.take(indexes), given.take(indexes), spread[index])
        return pa.array(partitions)

    def _named(self, topic: str, key: pa.Array, given: pa.Array, spread: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the partition of each row of one topic. Raises RowError, which names the topic."""
        return targets(topic, key, given, self._counts, spread)
