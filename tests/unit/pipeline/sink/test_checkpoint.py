"""What a read is divided into, where rows go, and which options are refused: no Spark, no broker."""

from __future__ import annotations

import hashlib
import os
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")
pytest.importorskip("pyspark")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from oncelog import ConfigError, TopicPartition  # noqa: E402
from oncelog.client.config import ConsumerConfig, ProducerConfig  # noqa: E402
from oncelog.pipeline.data_source import OncelogDataSource  # noqa: E402
from oncelog.pipeline.options import Position, SinkOptions, SourceOptions, Subscription  # noqa: E402
from oncelog.pipeline.sink import attempts  # noqa: E402
from oncelog.pipeline.sink.checkpoint import (  # noqa: E402
    LocalNotes,
    done_and_pending,
    newest_plan,
    recent_plans,
)
from oncelog.pipeline.sink.ownership import StateError  # noqa: E402
from oncelog.pipeline.sink.produce import Written  # noqa: E402
from oncelog.pipeline.sink.rows import RowError, grouped  # noqa: E402
from oncelog.pipeline.sink.settings import SinkSettings  # noqa: E402
from oncelog.pipeline.sink.transaction import Attempt, SinkState  # noqa: E402
from oncelog.pipeline.sink.writer import StreamWriter, TaskFailedError, TaskWritten  # noqa: E402
from oncelog.pipeline.source.offsets import OffsetRange, from_json, limited, split, to_json  # noqa: E402
from oncelog.pipeline.source.range_reader import SCHEMA, SCHEMA_WITH_HEADERS  # noqa: E402
from oncelog.pipeline.source.schema import source_schema  # noqa: E402
from pyspark.sql.pandas.types import to_arrow_schema  # noqa: E402
from pyspark.sql.types import StructType  # noqa: E402

BOOTSTRAP = {"kafka.bootstrap.servers": "127.0.0.1:1"}
WAITING = st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 100), st.integers(0, 1000)), min_size=1)


@given(WAITING, st.integers(1, 500))
def test_a_limit_is_kept_and_every_read_gets_on(waiting: dict[int, tuple[int, int]], most: int) -> None:
    start = {TopicPartition("t", one): begin for one, (begin, _) in waiting.items()}
    end = {TopicPartition("t", one): begin + size for one, (begin, size) in waiting.items()}
    until = limited(start, end, most)
    taken = {one: until[one] - start[one] for one in end}
    assert all(0 <= taken[one] <= end[one] - start[one] for one in end)
    total = sum(end.values()) - sum(start.values())
    assert sum(taken.values()) <= most or until == end
    assert sum(taken.values()) >= min(1, total)
    assert from_json(to_json(until)) == until


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=5), st.integers(1, 20), st.none() | st.integers(1, 300))
def test_split_ranges_are_the_same_offsets(sizes: list[int], least: int, most: int | None) -> None:
    ranges = [OffsetRange("t", one, 5, 5 + size) for one, size in enumerate(sizes)]
    parts = split(ranges, least, most)
    for one in ranges:
        mine = [part for part in parts if part.partition == one.partition]
        assert mine[0].start == one.start
        assert mine[-1].end == one.end
        assert all(before.end == after.start for before, after in pairwise(mine))
        assert all(part.end > part.start for part in mine)
    assert len(parts) >= min(least, sum(sizes))
    assert most is None or all(part.end - part.start <= most for part in parts)


def test_arrow_and_spark_have_one_schema() -> None:
    assert to_arrow_schema(source_schema(False), timezone="UTC") == SCHEMA
    assert to_arrow_schema(source_schema(True), timezone="UTC") == SCHEMA_WITH_HEADERS


def batch(**columns: list[object]) -> Any:
    kinds = {"partition": pa.int32(), "value": pa.binary(), "key": pa.string(), "topic": pa.string()}
    return pa.RecordBatch.from_pydict({name: pa.array(some, kinds[name]) for name, some in columns.items()})


class Counts:
    """The driver has decided on `decided` partitions, and every topic has `now` partitions."""

    def __init__(self, decided: int, now: int = 0) -> None:
        self.decided, self.now = decided, now or decided

    def __call__(self, topic: str) -> int:
        return self.decided

    def existing(self, topic: str, named: int) -> int:
        return self.now


def test_rows_go_to_their_topic_and_partition_in_order() -> None:
    rows = batch(value=[b"0", b"1", None, b"3", b"4"], topic=["a", "b", "a", "a", "b"], partition=[1, None, 0, 1, 2])
    found = {one.partition: one.value.to_pylist() for one in grouped(rows, "", False, Counts(3), own=5)}
    assert found == {
        TopicPartition("a", 1): [b"0", b"3"],
        TopicPartition("a", 0): [None],
        TopicPartition("b", 2): [b"1", b"4"],  # without key and partition: task 5's own is 5 % 3
    }
    assert {one.partition.topic for one in grouped(rows, "c", False, Counts(3), own=0)} == {"c"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": [b"x"], "topic": ["a"], "partition": [3]}, "topic 'a': the column partition is 3 in a row"),
        ({"value": [b"x"], "topic": ["a"], "partition": [-1]}, "is -1 in a row, but the topic has 3 partitions"),
        ({"value": [b"x"], "topic": [None]}, "the column topic is null"),
    ],
)
def test_rows_that_cannot_be_written_are_refused(columns: dict[str, list[object]], message: str) -> None:
    with pytest.raises(RowError) as refused:
        list(grouped(batch(**columns), "", False, Counts(3), own=0))
    assert message in str(refused.value)


def test_a_partition_that_is_not_known_is_asked_for_before_its_row_is_refused() -> None:
    rows = batch(value=[b"x"], topic=["a"], partition=[6])
    (found,) = grouped(rows, "", False, Counts(3, now=7), 0)
    assert found.partition == TopicPartition("a", 6)
    with pytest.raises(RowError, match="is 6 in a row, but the topic has 4 partitions"):
        list(grouped(rows, "", False, Counts(3, now=4), 0))


def test_rows_without_a_partition_stay_where_they_belong_when_the_topic_gets_more_partitions() -> None:
    """Even beside a row that names one of the new partitions."""
    columns: dict[str, list[object]] = {"value": [b"%d" % n for n in range(50)], "key": [f"k{n}" for n in range(50)]}
    before = {one.partition: one.value.to_pylist() for one in grouped(batch(**columns), "t", False, Counts(3), 0)}
    named = batch(**{name: [*some, "new"] for name, some in columns.items()}, partition=[*[None] * 50, 6])
    after = {one.partition: one.value.to_pylist() for one in grouped(named, "t", False, Counts(3, now=7), 0)}
    assert after == {**before, TopicPartition("t", 6): [b"new"]}


def test_options_of_the_client_and_of_the_other_side() -> None:
    both = {**BOOTSTRAP, "KAFKA.linger.ms": "7", "kafka.max.poll.records": "9", "kafka.client.id": "me"}
    producer = SinkOptions(both).client(ProducerConfig, client_id="default", linger_ms=3)
    assert (producer.linger_ms, producer.client_id) == (7, "me")
    consumer = SourceOptions(both).client(ConsumerConfig)
    assert (consumer.max_poll_records, consumer.client_id) == (9, "me")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "kafka.bootstrap.servers: is required"),
        ({**BOOTSTRAP}, "give exactly one of subscribe, subscribePattern and assign"),
        ({**BOOTSTRAP, "assign": "t"}, "is not JSON"),
        ({**BOOTSTRAP, "subscribePattern": "("}, "is not a regular expression"),
        ({**BOOTSTRAP, "subscribe": "t", "startingOffsets": '{"t": {"0": -3}}'}, "-3 of t-0 is not a whole number"),
        ({**BOOTSTRAP, "subscribe": "t", "startingOffsets": '{"t": 1}'}, "is not JSON"),
        ({**BOOTSTRAP, "subscribe": "t", "nonsense": "1"}, "is not an option of format"),
    ],
)
def test_source_options_that_cannot_be_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(options)
    assert message in str(refused.value)


@pytest.mark.parametrize("name", ["oncelog.batch", "oncelog.done"])
def test_numbers_of_a_query_are_checked(name: str) -> None:
    schema = StructType().add("value", "string")
    for value, problem in (("x", "'x' is not a whole number"), ("-1", "'-1' is below 0")):
        with pytest.raises(ConfigError, match=f"{name}: {problem}"):
            SinkSettings({**BOOTSTRAP, "topic": "t", "writeId": "w", name: value}, schema, streaming=False)


def read(options: dict[str, str]) -> None:
    given = SourceOptions(options)
    Subscription.of(given)
    Position.of(given, "starting", -1)


def test_a_query_has_one_name_however_its_checkpoint_is_spelled() -> None:
    schema = StructType().add("value", "string")

    def name(location: str) -> str:
        options = {**BOOTSTRAP, "topic": "t", "checkpointLocation": location}
        return SinkSettings(options, schema, streaming=True).transactional_id

    assert name("/data/c") == name("file:///data/c") == name("file:/data/c") == name("/data/c/")
    assert name("s3a://data/c") == name("s3a://data/c/")
    assert name("dbfs:/c") == name("dbfs:///c") == name("dbfs:/c/")
    assert name("s3a://b/x/c") == name("s3a://b/x//c") == name("S3A://b/x/./c") == name("s3a://b//y/../x/c//")
    assert name("/data/c") == name("file:////data/c") == name("FILE:/data//c") == name("//data/x/../c")
    assert name("dbfs:/c") == name("dbfs:////c") == name("dbfs:/./c")
    assert name("hdfs:/c") == name("hdfs:///c") != name("hdfs://other/c")
    assert len({name("/data/c"), name("/data/d"), name("s3a://data/c")}) == 3


@pytest.mark.parametrize(
    ("location", "spelling"),
    [
        ("/data/c", "/data/c"),
        ("file:/data/c/", "/data/c"),
        ("file:///data/c", "/data/c"),
        ("s3a://bucket/c/", "s3a://bucket/c"),
        ("hdfs:///c", "hdfs:///c"),
    ],
)
def test_the_names_of_running_queries_stay(location: str, spelling: str) -> None:
    """Another name would be another query: its state would not be found."""
    schema = StructType().add("value", "string")
    options = {**BOOTSTRAP, "topic": "t", "checkpointLocation": location}
    name = hashlib.sha256(spelling.encode()).hexdigest()[:32]
    assert SinkSettings(options, schema, streaming=True).transactional_id == f"oncelog-query-{name}"


def test_the_name_of_a_remote_checkpoint_is_the_same_in_every_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    schema = StructType().add("value", "string")
    names = set()
    for directory in (tmp_path, Path("/")):
        monkeypatch.chdir(directory)
        options = {**BOOTSTRAP, "topic": "t", "checkpointLocation": "dbfs:/checkpoints/c"}
        names.add(SinkSettings(options, schema, streaming=True).transactional_id)
    assert len(names) == 1


def writer_at(state: SinkState | None, digest: str, batch_id: int, **options: str) -> StreamWriter:
    """A writer that has begun batch `batch_id`, whose plan has this digest."""
    options = {**BOOTSTRAP, "topic": "t", "checkpointLocation": "/nowhere", **options}
    writer = StreamWriter(SinkSettings(options, StructType().add("value", "string"), streaming=True))
    writer.attempt = Attempt("q", "state", 1, 2, 2, 3.5, state)
    writer.plans = {batch_id: digest} if digest else {}
    return writer


@pytest.mark.parametrize(
    ("state", "digest", "message"),
    [
        (SinkState("query", 4, "plan"), "other", "another batch 4 of this query is committed"),
        (SinkState("query", 4, ""), "plan", "unknown whether it has the same rows"),
        (SinkState("query", 4, "plan"), "", "plan of batch 4 in /nowhere/offsets cannot be read"),
        (None, "", "plan of batch 4 in /nowhere/offsets cannot be read"),
        (SinkState("query", 5, "plan"), "plan", "batch 5 of this query is committed"),
        (SinkState("query", 2, "plan"), "plan", "committed with this transactional id is 2"),
        (None, "plan", "has no state of this query"),
        (SinkState("other", 3, "plan"), "plan", "only of query other"),
    ],
)
def test_a_batch_that_may_be_committed_is_refused(state: SinkState | None, digest: str, message: str) -> None:
    with pytest.raises(StateError) as refused:
        writer_at(state, digest, 4).is_committed("query", 4)
    assert message in str(refused.value)


def test_a_batch_is_skipped_only_if_its_own_plan_is_committed() -> None:
    assert writer_at(SinkState("query", 4, "plan"), "plan", 4).is_committed("query", 4)
    assert not writer_at(SinkState("query", 3, "other"), "plan", 4).is_committed("query", 4)
    assert not writer_at(None, "plan", 0).is_committed("query", 0)


def test_a_batch_after_a_checkpoint_that_had_nothing_pending_is_new() -> None:
    done = {"oncelog.done": "3"}
    assert not writer_at(None, "plan", 4, **done).is_committed("query", 4)
    assert not writer_at(SinkState("query", 1, "old"), "plan", 4, **done).is_committed("query", 4)
    with pytest.raises(StateError):
        writer_at(None, "plan", 5, **done).is_committed("query", 5)
    with pytest.raises(StateError):
        writer_at(SinkState("other", 1, "old"), "plan", 4, **done).is_committed("query", 4)
    with pytest.raises(StateError):
        writer_at(None, "plan", 4, **{"oncelog.done": ""}).is_committed("query", 4)
    assert not writer_at(None, "plan", 4, adoptQuery="true").is_committed("query", 4)


def test_a_plan_is_found_although_another_driver_has_planned_the_next_batch(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for number in range(5):
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{number}")
    assert [plan.batch_id for plan in recent_plans(str(tmp_path))] == [4, 3, 2]


def test_what_a_checkpoint_has_done_and_what_is_pending(tmp_path: Path) -> None:
    notes = LocalNotes(str(tmp_path))
    assert done_and_pending(notes) == (None, None)
    for kind in ("offsets", "commits"):
        (tmp_path / kind).mkdir()
    (tmp_path / "offsets" / "0").touch()
    assert done_and_pending(notes) == (None, 0)
    (tmp_path / "commits" / "0").touch()
    assert done_and_pending(notes) == (0, None)
    (tmp_path / "offsets" / "1").touch()
    (tmp_path / "offsets" / ".1.crc").touch()
    assert done_and_pending(notes) == (0, 1)


@pytest.mark.parametrize("location", ["s3a://bucket/c", "hdfs:/c", "dbfs:/c", "abfss://a@b/c", "gs://b/c"])
def test_plain_format_refuses_a_checkpoint_that_it_cannot_read(location: str) -> None:
    options = {**BOOTSTRAP, "topic": "t", "checkpointLocation": location}
    with pytest.raises(ConfigError, match=r"is not on this machine's disk.*write_stream"):
        OncelogDataSource(options).streamWriter(StructType().add("value", "string"), False)


def test_a_commit_with_a_failed_task_raises_the_failure_that_was_not_a_consequence_of_another() -> None:
    writer = writer_at(None, "plan", 0)
    assert writer.attempt is not None
    written = {TopicPartition("t", 0): Written(1, conflict=False)}
    messages = [
        TaskWritten(writer.attempt, 0, "query", 0, "plan", written=written),
        TaskWritten(writer.attempt, 1, "query", 0, "plan", failure="TakenOverError: fenced\n", transaction_ended=True),
        TaskWritten(writer.attempt, 2, "query", 0, "plan", failure="oncelog.pipeline.sink.rows.RowError: bad\n"),
    ]
    with pytest.raises(TaskFailedError, match=r"task 2 has failed, .*\noncelog\.pipeline\.sink\.rows\.RowError: bad"):
        writer.commit([*messages], 0)


def test_an_attempt_is_remembered_for_its_driver_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    attempt = Attempt("q", "state", 1, 2, 2, 3.5, SinkState("owner", 4))
    attempts.remember(attempt)
    assert attempts.recall("q") == attempt
    assert attempts.recall("other") is None
    with monkeypatch.context() as other_driver:
        other_driver.setattr(attempts, "_driver", lambda: "5.77.b")
        assert attempts.recall("q") is None
    attempts.forget("q")
    assert attempts.recall("q") is None


def test_a_driver_knows_what_it_has_committed_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    attempt = Attempt("q", "state", 1, 2, 2, 3.5, None)
    assert attempts.last_decided("q") is None
    attempts.remember(attempt)
    attempts.decided("q", SinkState("owner", 4, "plan"))
    assert attempts.recall("q") is None
    attempts.remember(attempt)
    attempts.decided("q", None)  # aborted
    assert attempts.last_decided("q") == SinkState("owner", 4, "plan")
    monkeypatch.setattr(attempts, "_driver", lambda: "5.77.b")
    assert attempts.last_decided("q") is None


def test_drivers_with_one_process_id_are_told_apart() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        mine, its = attempts._name_of(os.getpid()), attempts._name_of(process.pid)
    finally:
        process.kill()
        process.wait()
    assert mine.partition(".")[0] == str(os.getpid())
    assert mine.split(".")[1:2] != its.split(".")[1:2], "started at different times"
    assert attempts._name_of(process.pid) == ""


def test_the_plan_of_a_batch_is_what_spark_has_noted_last(tmp_path: Path) -> None:
    offsets = tmp_path / "offsets"
    assert newest_plan(str(tmp_path)) is None
    offsets.mkdir()
    assert newest_plan(str(tmp_path)) is None
    for number in (9, 10):
        (offsets / str(number)).write_text(f"v1\n{number}")
        (offsets / f".{number}.crc").write_text("x")
    plan = newest_plan(f"file://{tmp_path}")
    assert plan is not None
    assert plan.batch_id == 10
    assert newest_plan(str(tmp_path)) == plan
    (offsets / "10").write_text("v1\nother offsets")
    again = newest_plan(str(tmp_path))
    assert again is not None
    assert again.batch_id == 10
    assert again.digest != plan.digest
    assert newest_plan("s3a://bucket/checkpoint") is None
    assert newest_plan("") is None
