"""Writing frames to topics: one transaction per batch, replays skipped, failures leave nothing behind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from oncelog.client.errors import ConfigError
from oncelog.client.producer.partitioner import partition_for_key
from oncelog.pipeline import write, write_stream
from oncelog.pipeline.sink.frames import repartitioned
from oncelog.pipeline.sink.transaction import SupersededError
from pyspark.errors.exceptions.captured import AnalysisException, StreamingQueryException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

FAILS = "if(cast(value as string) = '7', cast(raise_error('no seven') as binary), value) value"


def run(frame: DataFrame, options: dict[str, str], checkpoint: Path, *, plain: bool = False) -> list[int]:
    """Write a stream to the end of what there is; the numbers of the batches that ran."""
    options = {**options, "checkpointLocation": str(checkpoint)}
    writer = frame.writeStream.format("oncelog").options(**options) if plain else write_stream(frame, options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(120)
    return [progress.batchId for progress in query.recentProgress if progress.numInputRows]


def stream(spark: SparkSession, topics: Any, topic: str, **options: Any) -> DataFrame:
    options = {"subscribe": topic, "startingOffsets": "earliest", **options}
    return spark.readStream.format("oncelog").options(**topics.options, **options).load()


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died between Kafka's commit and Spark's."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in commits.iterdir():
        if str(last) in path.name.split("."):
            path.unlink()


def test_a_batch_is_written_with_everything_that_a_row_has(spark: SparkSession, topics: Any) -> None:
    a, b = topics.make("a"), topics.make("b")
    frame = spark.range(60).selectExpr(
        "if(id % 3 = 0, null, concat('key', id)) key",
        "if(id = 59, null, cast(id as string)) value",
        f"if(id < 40, '{a}', '{b}') topic",
        "cast(if(id % 10 = 0, 1, null) as int) partition",
        "if(id = 5, array(struct('h' as key, cast('x' as binary) as value)), null) headers",
        "id as other",
    )
    write(frame, topics.options)
    found = topics.records(a) + topics.records(b)
    assert sorted(int(one.value) for one in found if one.value is not None) == list(range(59))
    assert [one.topic for one in found if one.value is None] == [b]
    for one in found:
        number = 59 if one.value is None else int(one.value)
        assert one.topic == (a if number < 40 else b)
        assert one.key == (None if number % 3 == 0 else f"key{number}".encode())
        if number % 10 == 0:
            assert one.partition == 1
        elif one.key is not None:
            assert one.partition == partition_for_key(one.key, 3)
        assert list(one.headers) == ([("h", b"x")] if number == 5 else [])
    assert len({one.partition for one in found if one.key is None}) == 3, "rows without a key are spread"


def test_headers_are_left_out_only_if_that_is_asked_for(spark: SparkSession, topics: Any) -> None:
    topic = topics.make("out")
    frame = spark.range(1).selectExpr("'v' value", "array(struct('h' as key, cast('x' as binary) as value)) headers")
    write(frame, {**topics.options, "topic": topic, "includeHeaders": "false"})
    frame.write.format("oncelog").options(**topics.options, topic=topic).mode("append").save()
    assert sorted(list(one.headers) for one in topics.records(topic)) == [[], [("h", b"x")]]


def test_keys_land_where_they_belong_whatever_types_arrow_is_told_to_use(spark: SparkSession, topics: Any) -> None:
    topic = topics.make("out")
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        frame = spark.range(200).selectExpr("concat('key', id) key", "cast(id as string) value")
        write(frame, {**topics.options, "topic": topic})
        assert len(topics.values(topic)) == 200
        back = spark.read.format("oncelog").options(**topics.options, subscribe=topic).load()
        assert {(row.partition, bytes(row.key)) for row in back.collect()} == {
            (partition_for_key(key, 3), key) for key in (f"key{n}".encode() for n in range(200))
        }
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


def test_a_header_without_a_key_is_told_so(spark: SparkSession, topics: Any) -> None:
    frame = spark.range(1).selectExpr(
        "'v' value", "array(struct(cast(null as string) as key, cast('x' as binary) as value)) headers"
    )
    with pytest.raises(Exception, match="RowError: a header in the column headers has no key"):
        write(frame, {**topics.options, "topic": topics.make("out")})


def test_batches_beyond_the_topic_s_limit_are_told_with_the_remedy(spark: SparkSession, topics: Any) -> None:
    topic = topics.make("out", config={"max.message.bytes": "10000"})
    frame = spark.range(50).selectExpr("repeat('x', 1000) value", "cast(0 as int) partition")
    with pytest.raises(
        Exception, match=r"a batch of 50 rows has \d+ bytes, more .*: set kafka\.batch\.size below that"
    ):
        write(frame, {**topics.options, "topic": topic})
    write(frame, {**topics.options, "topic": topic, "kafka.batch.size": "5000"})
    assert len(topics.values(topic)) == 50


def test_a_write_with_an_id_happens_once(spark: SparkSession, topics: Any) -> None:
    topic = topics.make("out")
    options = {**topics.options, "topic": topic, "writeId": topics.fresh_name("write")}
    for _ in range(2):
        write(spark.range(20).selectExpr("cast(id as string) value"), options)
    assert topics.values(topic) == sorted(str(n) for n in range(20))


def test_a_write_that_fails_leaves_nothing(spark: SparkSession, topics: Any) -> None:
    topic = topics.make("out")
    options = {**topics.options, "topic": topic}
    frame = spark.range(0, 20, 1, 2).selectExpr("id", "cast(cast(id as string) as binary) value")
    with pytest.raises(Exception, match="no seven"):
        write(frame.selectExpr(FAILS), options)
    assert topics.values(topic) == []
    with pytest.raises(AnalysisException, match=r"cannot be overwritten: use \.mode"):
        frame.write.format("oncelog").options(**options).mode("overwrite").save()


def test_plain_format_names_partition_tasks_and_remedy(spark: SparkSession, topics: Any) -> None:
    topic = topics.make("out")
    options = {**topics.options, "topic": topic}
    frame = spark.range(0, 20, 1, 2).selectExpr("cast(id as string) value", "cast(1 as int) partition")
    message = rf"{topic}-1 was written by tasks 0 and 1.*write_stream\(df, options\).*coalesce\(1\)"
    with pytest.raises(Exception, match=message):
        frame.write.format("oncelog").options(**options).mode("append").save()
    assert topics.values(topic) == []
    frame.coalesce(1).write.format("oncelog").options(**options).mode("append").save()
    assert topics.values(topic) == sorted(str(n) for n in range(20))


def test_every_batch_of_a_stream_is_there_once(spark: SparkSession, topics: Any, tmp_path: Path) -> None:
    source, a, b = topics.make("in"), topics.make("a"), topics.make("b")
    topics.send(source, range(30))
    frame = stream(spark, topics, source, maxOffsetsPerTrigger=12).selectExpr(
        "value key", "value", f"if(cast(cast(value as string) as int) % 2 = 0, '{a}', '{b}') topic"
    )
    checkpoint = tmp_path / "checkpoint"
    ran = run(frame, topics.options, checkpoint)
    assert ran == list(range(len(ran)))
    assert len(ran) >= 3
    # The last batch is run again, as after a driver that died before it had written that it was committed.
    forget_last_commit(checkpoint)
    assert run(frame, topics.options, checkpoint) == ran[-1:]
    topics.send(source, range(30, 40))
    run(frame, topics.options, checkpoint)
    assert topics.values(a) == sorted(str(n) for n in range(0, 40, 2))
    assert topics.values(b) == sorted(str(n) for n in range(1, 40, 2))


@pytest.mark.slow
def test_update_mode_writes_what_changed_once(spark: SparkSession, topics: Any, tmp_path: Path) -> None:
    source, topic = topics.make("in"), topics.make("out")
    frame = stream(spark, topics, source).groupBy("value").count()
    frame = frame.selectExpr("value key", "concat(cast(value as string), '=', count) value")
    options = {**topics.options, "topic": topic, "checkpointLocation": str(tmp_path / "checkpoint")}

    def update() -> None:
        query = write_stream(frame, options, output_mode="update").trigger(availableNow=True).start()
        query.awaitTermination(120)

    topics.send(source, ["a", "b", "a"])
    update()
    topics.send(source, ["b", "c"])
    update()
    forget_last_commit(tmp_path / "checkpoint")
    update()
    assert topics.values(topic) == ["a=2", "b=1", "b=2", "c=1"]


def test_a_failed_batch_blocks_nobody_and_is_written_when_it_can_be(
    spark: SparkSession, topics: Any, tmp_path: Path
) -> None:
    source, topic = topics.make("in"), topics.make("out")
    topics.send(source, range(10))
    frame = stream(spark, topics, source)
    options = {**topics.options, "topic": topic}
    with pytest.raises(StreamingQueryException, match="no seven"):
        run(frame.selectExpr(FAILS), options, tmp_path / "checkpoint")
    assert topics.values(topic) == []
    run(frame, options, tmp_path / "checkpoint")
    assert topics.values(topic) == sorted(str(n) for n in range(10))


@pytest.mark.slow
def test_a_checkpoint_that_kafka_does_not_know_is_refused(spark: SparkSession, topics: Any, tmp_path: Path) -> None:
    source, topic = topics.make("in"), topics.make("out")
    frame = stream(spark, topics, source).coalesce(1)
    checkpoint = tmp_path / "checkpoint"
    options = {**topics.options, "topic": topic, "transactionalId": topics.fresh_name("one")}
    for some in (range(5), range(5, 10)):
        topics.send(source, some)
        run(frame, options, checkpoint, plain=True)
    forget_last_commit(checkpoint)
    other = {**options, "transactionalId": topics.fresh_name("other")}
    with pytest.raises(StreamingQueryException, match=r"(?s)has no state of this query.*adoptQuery"):
        run(frame, other, checkpoint, plain=True)
    assert topics.values(topic) == sorted(str(n) for n in range(10))
    run(frame, {**other, "adoptQuery": "true"}, checkpoint, plain=True)  # the user says that it is to be written
    assert len(topics.values(topic)) == 15


def test_another_batch_with_the_number_of_the_last_one_is_not_taken_for_it(
    spark: SparkSession, topics: Any, tmp_path: Path
) -> None:
    """A checkpoint that has lost its end, by a copy or a power failure: Spark plans the number again, for more rows."""
    source, topic = topics.make("in"), topics.make("out")
    frame, checkpoint = stream(spark, topics, source).coalesce(1), tmp_path / "checkpoint"
    options = {**topics.options, "topic": topic}
    for some in (range(5), range(5, 10)):
        topics.send(source, some)
        run(frame, options, checkpoint)
    forget_last_commit(checkpoint)
    for path in (checkpoint / "offsets").iterdir():
        if "1" in path.name.split("."):
            path.unlink()
    topics.send(source, range(10, 20))
    with pytest.raises(
        StreamingQueryException, match=r"another batch 1 of this query is committed: the checkpoint is old"
    ):
        run(frame, options, checkpoint)
    assert topics.values(topic) == sorted(str(n) for n in range(10))


@pytest.fixture
def mounted(spark: SparkSession, tmp_path: Path, fresh_name: Callable[[str], str]) -> Iterator[str]:
    """A directory behind another scheme of Hadoop's, as a remote file system is: `viewfs://mounted-1/checkpoints`."""
    (tmp_path / "mounted").mkdir()
    authority = fresh_name("mounted")  # of this test: Hadoop keeps file systems open
    link = f"fs.viewfs.mounttable.{authority}.link./checkpoints"
    spark.conf.set(link, f"file://{tmp_path}/mounted")
    yield f"viewfs://{authority}/checkpoints"
    spark.conf.unset(link)


@pytest.mark.parametrize("output_mode", [pytest.param("append", marks=pytest.mark.slow), "complete"])
def test_every_batch_with_a_remote_checkpoint_is_there_once(
    spark: SparkSession, topics: Any, tmp_path: Path, mounted: str, output_mode: str
) -> None:
    source, topic = topics.make("in"), topics.make("out")
    frame = stream(spark, topics, source).select("value")
    if output_mode == "complete":
        frame = frame.groupBy("value").count().select("value")
    options = {**topics.options, "topic": topic, "checkpointLocation": f"{mounted}/c"}

    def run_remote() -> None:
        query = write_stream(frame, options, output_mode=output_mode).trigger(availableNow=True).start()
        query.awaitTermination(120)

    topics.send(source, range(5))
    run_remote()
    topics.send(source, range(5, 10))
    run_remote()
    forget_last_commit(tmp_path / "mounted" / "c")
    run_remote()  # the last batch again: skipped
    first, both = [str(n) for n in range(5)], [str(n) for n in range(10)]
    assert topics.values(topic) == (both if output_mode == "append" else sorted(first + both))


@pytest.mark.slow
def test_another_batch_in_a_remote_checkpoint_is_not_taken_for_the_last_one(
    spark: SparkSession, topics: Any, tmp_path: Path, mounted: str
) -> None:
    source, topic = topics.make("in"), topics.make("out")
    frame, options = stream(spark, topics, source).coalesce(1), {**topics.options, "topic": topic}
    options["checkpointLocation"] = f"{mounted}/c"

    def run_remote() -> None:
        write_stream(frame, options).trigger(availableNow=True).start().awaitTermination(120)

    for some in (range(5), range(5, 10)):
        topics.send(source, some)
        run_remote()
    forget_last_commit(tmp_path / "mounted" / "c")
    for path in (tmp_path / "mounted" / "c" / "offsets").iterdir():
        if "1" in path.name.split("."):
            path.unlink()
    topics.send(source, range(10, 20))
    with pytest.raises(StreamingQueryException, match=r"another batch 1 of this query is committed"):
        run_remote()
    assert topics.values(topic) == sorted(str(n) for n in range(10))


def test_a_remote_checkpoint_that_spark_cannot_open_is_refused(spark: SparkSession, topics: Any) -> None:
    frame = stream(spark, topics, topics.make("in"))
    options = {**topics.options, "topic": "t", "checkpointLocation": "nosuch://bucket/c"}
    with pytest.raises(ConfigError, match=r"checkpointLocation: nosuch://bucket/c cannot be opened: .*nosuch"):
        write_stream(frame, options)


@pytest.mark.parametrize("output_mode", [pytest.param("append", marks=pytest.mark.slow), "update"])
def test_a_query_that_was_down_until_its_state_expired_goes_on(
    spark: SparkSession, topics: Any, tmp_path: Path, output_mode: str
) -> None:
    """As a weekly job is: nothing is pending in its checkpoint, so that the next batch is new."""
    source, topic, name = topics.make("in"), topics.make("out"), topics.fresh_name("weekly")
    frame = stream(spark, topics, source)
    options = {**topics.options, "topic": topic, "transactionalId": name}
    options["checkpointLocation"] = str(tmp_path / "checkpoint")

    def run_weekly() -> None:
        writer = write_stream(frame, options, output_mode=output_mode)
        writer.trigger(availableNow=True).start().awaitTermination(120)

    topics.send(source, range(5))
    run_weekly()
    topics.forget_offsets(name)
    topics.send(source, range(5, 10))
    run_weekly()
    assert topics.values(topic) == [str(n) for n in range(10)]
    # A pending batch may be committed or not: only the state could tell.
    topics.forget_offsets(name)
    forget_last_commit(tmp_path / "checkpoint")
    with pytest.raises(StreamingQueryException, match=r"(?s)has no state of this query.*adoptQuery"):
        run_weekly()
    assert topics.values(topic) == [str(n) for n in range(10)]


def test_an_old_driver_ends_when_a_newer_one_has_started(spark: SparkSession, topics: Any, tmp_path: Path) -> None:
    source, topic, name = topics.make("in"), topics.make("out"), topics.fresh_name("rolling")
    options = {**topics.options, "topic": topic, "transactionalId": name}
    options["checkpointLocation"] = str(tmp_path / "checkpoint")
    topics.send(source, range(5))
    query = write_stream(stream(spark, topics, source), options).trigger(processingTime="100 milliseconds").start()
    try:
        query.processAllAvailable()
        newer = topics.claim(name)
        topics.send(source, range(5, 10))
        with pytest.raises(StreamingQueryException, match="superseded: a newer driver"):
            query.awaitTermination(120)
        with pytest.raises(SupersededError):
            write_stream(stream(spark, topics, source), options).start()
        assert topics.owner(name) == newer
    finally:
        query.stop()
    assert topics.values(topic) == [str(n) for n in range(5)]


def as_spark_s_kafka_source_leaves_it(checkpoint: Path, topic: str, planned: list[int], done: int) -> None:
    """A checkpoint of `format("kafka")` as source and sink: batch n ends at offset `planned[n]` of each partition."""
    for kind in ("offsets", "commits", "sources/0"):
        (checkpoint / kind).mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"5d16bd6b-8bd2-4b84-8d4e-2b4a4d4c9d0b"}')

    def offsets(end: int) -> str:
        return json.dumps({topic: {str(one): end for one in range(3)}}, separators=(",", ":"))

    (checkpoint / "sources" / "0" / "0").write_bytes(b"\x00v1\n" + offsets(0).encode())
    for number, end in enumerate(planned):
        told = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000, "conf": {}}
        (checkpoint / "offsets" / str(number)).write_text(f"v1\n{json.dumps(told)}\n{offsets(end)}")
    for number in range(done):
        (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


@pytest.mark.slow
@pytest.mark.parametrize("pending", [False, True])
def test_a_checkpoint_of_spark_s_own_kafka_source_and_sink_goes_on(
    spark: SparkSession, topics: Any, tmp_path: Path, pending: bool
) -> None:
    source, topic, checkpoint = topics.make("in"), topics.make("out"), tmp_path / "checkpoint"
    topics.send(source, range(500))
    topics.send(topic, range(300))  # what the connector has written: batch 0
    as_spark_s_kafka_source_leaves_it(checkpoint, source, [100, 120] if pending else [100], done=1)
    frame, options = stream(spark, topics, source), {**topics.options, "topic": topic}
    if pending:
        with pytest.raises(StreamingQueryException, match=r"(?s)has no state of this query.*adoptQuery"):
            run(frame, options, checkpoint)
        options["adoptQuery"] = "true"
    run(frame, options, checkpoint)
    assert topics.values(topic) == sorted(str(n) for n in range(500))


def test_partitions_that_were_added_a_moment_ago_are_known(spark: SparkSession, topics: Any) -> None:
    topic = topics.make("grown")
    options = {**topics.options, "topic": topic}
    write(spark.range(10).selectExpr("cast(id as string) value"), options)
    topics.grow(topic, 7)
    for frame in (
        spark.range(1).selectExpr("'new' value", "cast(6 as int) partition"),
        spark.range(1).selectExpr("'newer' value", "cast(5 as int) partition"),
    ):
        write(frame, options)
    with pytest.raises(Exception, match="the column partition is 7 in a row, but the topic has 7 partitions"):
        write(spark.range(1).selectExpr("'x' value", "cast(7 as int) partition"), options)
    back = spark.read.format("oncelog").options(**topics.options, subscribe=topic).load()
    assert {row.partition for row in back.where("value in ('new', 'newer')").collect()} == {5, 6}


def test_rows_are_written_to_the_partitions_that_were_there_when_the_frame_was_laid_out(
    spark: SparkSession, topics: Any
) -> None:
    """Spark may compute the partition of a row again, for example when a shuffle file is lost."""
    topic = topics.make("grown")
    options = {**topics.options, "topic": topic}
    frame = repartitioned(spark.range(60).selectExpr("cast(id as string) key", "cast(id as string) value"), options)
    topics.grow(topic, 7)
    frame.write.format("oncelog").options(**options).mode("append").save()
    back = spark.read.format("oncelog").options(**topics.options, subscribe=topic).load().collect()
    assert {row.partition for row in back} == {0, 1, 2}
    assert sorted(int(row.value) for row in back) == list(range(60))


@pytest.mark.slow
def test_a_batch_far_behind_what_is_committed_here_is_refused(spark: SparkSession, topics: Any, tmp_path: Path) -> None:
    source, topic = topics.make("in"), topics.make("out")
    frame, checkpoint = stream(spark, topics, source).coalesce(1), tmp_path / "checkpoint"
    one = {**topics.options, "topic": topic, "transactionalId": topics.fresh_name("one")}
    other = {**one, "transactionalId": topics.fresh_name("other")}
    topics.send(source, range(5))
    run(frame, one, checkpoint)
    for some in (range(5, 10), range(10, 15)):
        topics.send(source, some)
        run(frame, {**other, "adoptQuery": "true"}, checkpoint)
    forget_last_commit(checkpoint)
    with pytest.raises(StreamingQueryException, match=r"batch 2 is to be .* transactional id is 0: .*adoptQuery"):
        run(frame, one, checkpoint)
    assert run(frame, other, checkpoint) == [2]
    assert topics.values(topic) == sorted(str(n) for n in range(15))


@pytest.mark.slow
def test_a_query_that_had_nothing_to_write_for_long_goes_on(spark: SparkSession, topics: Any, tmp_path: Path) -> None:
    """So long that its state in Kafka has expired."""
    source, topic, name = topics.make("in"), topics.make("out"), topics.fresh_name("idle")
    options = {**topics.options, "topic": topic, "transactionalId": name}
    topics.send(source, range(5))
    writer = write_stream(
        stream(spark, topics, source), {**options, "checkpointLocation": str(tmp_path / "checkpoint")}
    )
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        query.processAllAvailable()
        topics.forget_offsets(name)
        topics.send(source, range(5, 10))
        query.processAllAvailable()
        batches = [(progress["batchId"], progress["numInputRows"]) for progress in query.recentProgress]
    finally:
        query.stop()
    assert topics.values(topic) == [str(n) for n in range(10)], f"(batch, rows): {batches}"


@pytest.mark.parametrize(
    ("options", "columns", "message"),
    [
        ({}, ["value"], "neither the option topic nor a column topic"),
        ({"topic": "t"}, ["key"], "no column 'value'"),
        ({"topic": "t"}, ["id as value"], "bigint: cast it to binary or string"),
        ({"topic": "t"}, ["value", "id as partition"], "bigint: cast it to int"),
        ({"topic": "t", "kafka.acks": "1"}, ["value"], "always waits for all"),
        ({"topic": "t"}, ["value", "key VALUE"], "has this column twice"),
        ({"topic": "t", "kafka.partitioner.ignore.keys": "true"}, ["value"], "in the column partition"),
        ({"topic": "t", "topics": "u"}, ["value"], "did you mean topic?"),
        ({"topic": "t", "transactionalId": "a", "writeId": "b"}, ["value"], "and writeId cannot be combined"),
    ],
)
def test_frames_and_options_that_cannot_be_are_refused(
    spark: SparkSession, topics: Any, options: dict[str, str], columns: list[str], message: str
) -> None:
    frame = spark.range(3).selectExpr("id", "cast(id as string) key", "cast(id as string) value").selectExpr(columns)
    with pytest.raises(ValueError, match=re.escape(message)):
        write(frame, {**topics.options, **options})


def test_a_timeout_that_the_broker_does_not_allow_is_told_so(spark: SparkSession, topics: Any) -> None:
    options = {**topics.options, "topic": topics.make("out"), "kafka.transaction.timeout.ms": "2000000000"}
    with pytest.raises(Exception, match=r"kafka\.transaction\.timeout\.ms: 2000000000 is more than .*max\.timeout\.ms"):
        write(spark.range(1).selectExpr("cast(id as string) value"), options)


def test_a_stream_without_a_name_is_refused(spark: SparkSession, topics: Any) -> None:
    frame = spark.readStream.format("rate").load().selectExpr("cast(value as string) value")
    with pytest.raises(ValueError, match="checkpointLocation"):
        write_stream(frame, {**topics.options, "topic": "t"})
