"""Reading topics into Spark: schema, exact ranges, limits, starting points, data loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.errors.exceptions.captured import AnalysisException, StreamingQueryException
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What Spark's own Kafka source says of itself (KafkaRecordToRowConverter).
KAFKA_SCHEMA = """
    key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int,
    headers array<struct<key: string, value: binary>>
"""


def read(spark: SparkSession, topics: Any, topic: str, **options: Any) -> DataFrame:
    return spark.read.format("oncelog").options(**topics.options, subscribe=topic, **options).load()


def values(frame: DataFrame) -> list[str]:
    return sorted(row.value for row in frame.selectExpr("cast(value as string) value").collect())


def test_a_batch_has_columns_and_rows_of_the_kafka_source(spark: SparkSession, topics: Any) -> None:
    topic = topics.make("in")
    topics.send(topic, range(10), key=b"k", headers=[("h", b"1"), ("n", None)], timestamp_ms=1_700_000_000_123)
    topics.send(topic, ["aborted"] * 10, commit=False)
    topics.send(topic, [10, 11])
    frame = read(spark, topics, topic, includeHeaders=True, minPartitions=5)
    assert frame.schema == StructType.fromDDL(KAFKA_SCHEMA)
    assert frame.rdd.getNumPartitions() >= 5
    rows = frame.selectExpr("*", "unix_millis(timestamp) ms").collect()
    assert sorted(int(row.value) for row in rows) == list(range(12))
    keyed = [row for row in rows if row.key is not None]
    assert len(keyed) == 10
    for row in keyed:
        assert (bytes(row.key), row.topic, row.partition, row.timestampType) == (b"k", topic, int(row.value) % 3, 0)
        assert (row.offset, row.ms) == (int(row.value) // 3, 1_700_000_000_123)
        assert [(one.key, one.value) for one in row.headers] == [("h", b"1"), ("n", None)]
    assert {row.headers for row in rows if row.key is None} == {None}


def test_read_uncommitted_sees_what_was_aborted(spark: SparkSession, topics: Any) -> None:
    topic = topics.make("in")
    topics.send(topic, ["aborted"], commit=False)
    uncommitted = {"kafka.isolation.level": "read_uncommitted"}
    assert values(read(spark, topics, topic, **uncommitted)) == ["aborted"]
    assert values(read(spark, topics, topic)) == []


def test_starting_and_ending_points(spark: SparkSession, topics: Any) -> None:
    topic = topics.make("in")
    topics.send(topic, range(9), timestamp_ms=1000)
    topics.send(topic, range(9, 18), timestamp_ms=2000)  # offset 3 of each partition is a marker
    some = {"startingOffsets": json.dumps({topic: {"0": 2, "1": -2, "2": -1}})}
    assert values(read(spark, topics, topic, **some)) == sorted(
        str(n) for n in range(18) if n % 3 == 1 or (n % 3 == 0 and n >= 6)
    )
    until = {"endingOffsets": json.dumps({topic: {"0": 1, "1": 1, "2": -1}})}
    assert values(read(spark, topics, topic, **until)) == sorted(str(n) for n in range(18) if n < 2 or n % 3 == 2)
    assert values(read(spark, topics, topic, startingTimestamp=1500)) == sorted(str(n) for n in range(9, 18))
    assert values(read(spark, topics, topic, endingTimestamp=1500)) == sorted(str(n) for n in range(9))
    with pytest.raises(AnalysisException, match=r"startingTimestamp: .*-0 has no record at or after the timestamp 4"):
        values(read(spark, topics, topic, startingTimestamp=4_000_000_000_000))
    with pytest.raises(AnalysisException, match=r"leaves out .*-2: name each partition"):
        values(read(spark, topics, topic, startingOffsets=json.dumps({topic: {"0": 0, "1": 0}})))
    beyond = {"startingOffsets": json.dumps({topic: {"0": 99, "1": -2, "2": -2}})}
    with pytest.raises(AnalysisException, match=r"-0 ends at offset 8, before the offset 99 that the options name"):
        values(read(spark, topics, topic, **beyond))
    assert len(values(read(spark, topics, topic, **beyond, failOnDataLoss=False))) == 12
    ending = {"endingOffsets": json.dumps({topic: {"0": 99, "1": -1, "2": -1}})}
    with pytest.raises(AnalysisException, match=r"-0 ends at offset 8, before the offset 99 that the options name"):
        values(read(spark, topics, topic, **ending))
    assert len(values(read(spark, topics, topic, **ending, failOnDataLoss=False))) == 18
    with pytest.raises(AnalysisException, match=r"endingOffsets: .*-0 would end at 1, before it begins at 99"):
        values(read(spark, topics, topic, **beyond, **until))


def test_python_workers_import_pyspark_from_where_its_bytecode_is(spark: SparkSession) -> None:
    (where,) = spark.sparkContext.range(1).map(lambda _: __import__("pyspark").__file__).collect()
    assert where == pyspark.__file__


@pytest.mark.slow
def test_a_topic_that_is_not_there_is_told_of_where_nothing_can_wait_for_it(
    spark: SparkSession, topics: Any, tmp_path: Path
) -> None:
    topic = topics.make("in")
    with pytest.raises(AnalysisException, match="there is no topic missing-1 and no topic missing-2: correct the name"):
        values(read(spark, topics, f"{topic},missing-1,missing-2"))
    with pytest.raises(StreamingQueryException, match="there is no topic missing-1: correct the name"):
        run(stream(spark, topics, f"{topic},missing-1"), tmp_path / "checkpoint")
    assert run(stream(spark, topics, f"{topic},missing-1", failOnDataLoss=False), tmp_path / "other") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger"),
        ({"kafka.max.poll.recrods": "5"}, r"did you mean max\.poll\.records"),
        ({"subscribePattern": "x"}, "cannot be combined"),
        ({"kafka.group.id": "g"}, "joins no group"),
        ({"startingOffsets": "latest"}, "would read nothing"),
        ({"minPartitions": "many"}, "not a whole number"),
    ],
)
def test_options_that_cannot_be_are_refused(
    spark: SparkSession, topics: Any, options: dict[str, str], message: str
) -> None:
    with pytest.raises(AnalysisException, match=message):
        read(spark, topics, "any", **options).collect()


def run(frame: DataFrame, checkpoint: Path) -> list[int]:
    """Run a stream to the end of what there is; the rows of each micro-batch."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(checkpoint) + "-rows")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def stream(spark: SparkSession, topics: Any, topic: str, **options: Any) -> DataFrame:
    options = {"startingOffsets": "earliest", **options}
    return spark.readStream.format("oncelog").options(**topics.options, subscribe=topic, **options).load()


def test_a_stream_goes_on_where_it_was_within_its_limits(spark: SparkSession, topics: Any, tmp_path: Path) -> None:
    topic = topics.make("in")
    topics.send(topic, range(30))
    frame = stream(spark, topics, topic, maxOffsetsPerTrigger=12)
    first = run(frame, tmp_path / "checkpoint")
    assert sum(first) == 30
    assert max(first) <= 12
    assert len(first) >= 3
    topics.send(topic, range(30, 40))
    assert sum(run(frame, tmp_path / "checkpoint")) == 10
    assert values(spark.read.parquet(str(tmp_path / "checkpoint-rows"))) == sorted(str(n) for n in range(40))


def test_lost_records_fail_the_query_unless_it_says_otherwise(spark: SparkSession, topics: Any, tmp_path: Path) -> None:
    topic = topics.make("in")
    topics.send(topic, range(3))
    assert sum(run(stream(spark, topics, topic), tmp_path / "checkpoint")) == 3
    topics.send(topic, range(3, 30))
    topics.delete_before(topic, 5)
    with pytest.raises(StreamingQueryException, match=r"(?s)Offsets 2 to 4 of .* cannot be read.*failOnDataLoss"):
        run(stream(spark, topics, topic), tmp_path / "checkpoint")
    tolerant = stream(spark, topics, topic, failOnDataLoss=False)
    assert sum(run(tolerant, tmp_path / "checkpoint")) == 18


@pytest.mark.slow
def test_a_pattern_takes_in_topics_that_appear_later(spark: SparkSession, topics: Any, tmp_path: Path) -> None:
    stem = topics.fresh_name("pattern")
    topics.fresh_name = lambda name: f"{stem}-{name}"
    topics.send(topics.make("a"), range(3))
    options = {**topics.options, "subscribePattern": f"{stem}-[ab]", "startingOffsets": "latest"}
    frame = spark.readStream.format("oncelog").options(**options).load()
    assert run(frame, tmp_path / "checkpoint") == []
    topics.send(topics.make("b"), range(5))
    topics.make("c")
    assert sum(run(frame, tmp_path / "checkpoint")) == 5
