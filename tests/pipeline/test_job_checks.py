"""What is told before Spark is started, and while brokers are away: one line that says where and what to do."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from oncelog.client.errors import ConfigError
from oncelog.pipeline import session
from oncelog.pipeline.jobs import checks
from oncelog.pipeline.jobs.checks import SilenceWatch, prepare
from oncelog.pipeline.jobs.failures import LONGEST, as_job_error, final, reason
from oncelog.pipeline.jobs.progress import Progress
from oncelog.pipeline.jobs.spec import Job, JobError, Sink, Source
from oncelog.pipeline.jobs.waiting import Waiting
from oncelog.pipeline.session import shuffle_defaults
from pyspark.errors import AnalysisException


def job(directory: Path, bootstrap: str, topic: str = "t", **other: Any) -> Job:
    return Job(
        **{
            "name": "j",
            "checkpoint": str(directory / "checkpoint"),
            "sources": (Source(name="input", options={"subscribe": topic}),),
            "transforms": (),
            "sinks": (Sink(name="output", frame="input", options={"topic": topic}),),
            "options": {"kafka.bootstrap.servers": bootstrap},
            "max_restarts": 0,
            **other,
        }
    )


def refused(job: Job) -> str:
    notices: list[str] = []
    with pytest.raises(JobError) as error:
        prepare(job, notices.append)
    assert notices == []
    return str(error.value)


@pytest.fixture
def closed_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def test_directories_that_cannot_be_written(tmp_path: Path, closed_port: str) -> None:
    (tmp_path / "file").touch()
    told = refused(job(tmp_path / "file", closed_port))
    assert told == (
        f"checkpoint = {tmp_path}/file/checkpoint cannot be written to (Not a directory): "
        "name a directory that this user may write to"
    )
    files = Sink(name="files", frame="input", format="parquet", options={"path": f"file://{tmp_path}/file/out"})
    assert refused(job(tmp_path, closed_port, sinks=(files,))).startswith("sink 'files': path = file:///")


@pytest.mark.parametrize("location", ["s3a://bucket/checkpoint", "dbfs:/checkpoint", "HDFS:///checkpoint"])
def test_directories_of_other_file_systems_are_left_alone(
    tmp_path: Path, closed_port: str, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(job(tmp_path, closed_port, checkpoint=location)).startswith("Kafka at")
    assert list(tmp_path.iterdir()) == []


def test_a_path_with_a_colon_is_a_directory_of_this_machine(tmp_path: Path, closed_port: str) -> None:
    assert refused(job(tmp_path, closed_port, checkpoint=f"{tmp_path}/at:12")).startswith("Kafka at")
    assert (tmp_path / "at:12").is_dir()


def test_no_broker(tmp_path: Path, closed_port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "REACH_S", 0.2)
    told = refused(job(tmp_path, closed_port))
    assert told == (
        f"Kafka at {closed_port} cannot be reached (Connection refused): start it (oncelog serve), or correct "
        "kafka.bootstrap.servers"
    )
    notices: list[str] = []
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(JobError):
        prepare(job(tmp_path, closed_port, max_restarts=2), notices.append)
    assert notices == [f"{told}. Trying again"] * 2


def test_settings_that_cannot_be(tmp_path: Path, closed_port: str) -> None:
    assert "bootstrap.servers: 'nonsense' is not host:port" in refused(job(tmp_path, "nonsense"))
    sources = (Source(name="input"),)
    assert refused(job(tmp_path, closed_port, sources=sources)).startswith("source 'input': subscribe: is missing")


def test_a_missing_topic(tmp_path: Path, topics: Any) -> None:
    name = topics.fresh_name("missing")
    waiting: list[str] = []
    prepare(job(tmp_path, topics.bootstrap, name), waiting.append)
    at = topics.bootstrap
    missing = f"source 'input': there is no topic {name} at {at}"
    remedy = f"create it with `oncelog topic create {name} --bootstrap {at}`"
    assert waiting == [f"{missing}: waiting for it ({remedy})"]
    # Nothing would come of a job that only reads what is there.
    told = refused(job(tmp_path, topics.bootstrap, name, trigger="available-now"))
    assert told == f"{missing}: correct `subscribe`, or {remedy}"


def test_all_is_there(tmp_path: Path, topics: Any) -> None:
    notices: list[str] = []
    prepare(job(tmp_path, topics.bootstrap, topics.make("there")), notices.append)
    assert notices == []


def test_brokers_that_go_and_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "SILENCE_S", 0.0)
    monkeypatch.setattr(checks, "PROBE_S", 0.0)
    away = ""
    monkeypatch.setattr(checks, "reachable", lambda config: away)
    notices: list[str] = []
    watch = SilenceWatch(job(tmp_path, "127.0.0.1:9092"), notices.append)
    watch.look()
    assert notices == []
    away = "Connection refused"
    watch.look()
    watch.look()
    assert notices == ["Kafka at 127.0.0.1:9092 cannot be reached (Connection refused): the queries are waiting for it"]
    away = ""
    watch.look()
    watch.look()
    assert notices[1:] == ["Kafka at 127.0.0.1:9092 is back: the queries continue"]
    assert watch.all_there()
    away = "Connection refused"
    assert not watch.all_there()
    assert len(notices) == 3


def test_nobody_looks_while_batches_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []

    def reachable(config: object) -> str:
        looked.append(config)
        return ""

    monkeypatch.setattr(checks, "reachable", reachable)
    watch = SilenceWatch(job(tmp_path, "127.0.0.1:9092"), lambda text: None)
    watch.heard()
    watch.look()
    assert looked == []


def test_a_failure_is_told_in_one_line() -> None:
    spark = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted\n"
        "Traceback (most recent call last):\n  File x\n    raise Y\n"
        "oncelog.pipeline.sink.writer.PartitionConflictError: t-0 was written by tasks 0 and 1\n"
        "=== Streaming Query ===\n+- a plan\nJVM stacktrace: java.lang.Exception: x"
    )
    assert reason(spark) == "oncelog.pipeline.sink.writer.PartitionConflictError: t-0 was written by tasks 0 and 1"
    assert reason("[A] b\nc") == "[A] b"
    assert reason("\tat java.base/java.lang.Thread.run(Thread.java:840)\nb") == "b"
    assert reason("") == "no reason was given"
    assert len(reason("x" * 10_000)) == LONGEST
    udf = (
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in b\n    raise ValueError("not yet")\nValueError: not yet\n\tat org.A.b(A.scala:1)'
    )
    assert reason(udf) == "ValueError: not yet"
    slow = reason("org.apache.spark.SparkException: Python worker failed to connect back.\n\tat A.b(C.java:1)")
    assert slow.startswith("org.apache.spark.SparkException: Python worker failed to connect back: a Python process")
    assert len(reason(f"java.lang.OutOfMemoryError: Java heap space{'x' * 10_000}")) == LONGEST


def test_a_worker_without_oncelog_is_told_so() -> None:
    spark = AnalysisException(
        "[PYTHON_DATA_SOURCE_ERROR] Failed to create data source writer: Traceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n    import oncelog\n'
        "ModuleNotFoundError: No module named 'oncelog'\n SQLSTATE: 38000"
    )
    with pytest.raises(JobError) as told, as_job_error("sink 'output'"):
        raise spark
    assert str(told.value) == (
        "sink 'output': ModuleNotFoundError: No module named 'oncelog': Spark's Python workers do not have it. Install "
        "oncelog[pipeline] in the Python of every worker, and name that Python: PYSPARK_PYTHON=/path/to/python"
    )


def test_waiting_is_told_less_often_the_longer_it_takes() -> None:
    waiting = Waiting(100.0, first_s=8.0)
    said = [now - 100 for now in range(100, 170) if waiting.due(float(now)) is not None]
    assert said == [8, 16, 32, 64]
    waiting.heard(170.0)
    assert waiting.due(177.0) is None
    assert waiting.due(178.0) == 8.0


@pytest.mark.parametrize(
    ("master", "partitions"),
    [("local", "4"), ("local[2]", "4"), ("local[16]", "16"), ("local[8,3]", "8"), ("spark://a:7077", None)],
)
def test_a_local_master_has_as_many_shuffle_partitions_as_cores(master: str, partitions: str | None) -> None:
    assert shuffle_defaults(master).get("spark.sql.shuffle.partitions") == partitions


def test_a_session_has_these_shuffle_partitions_unless_the_job_sets_others(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = mock.MagicMock()
    builder.master.return_value = builder.appName.return_value = builder.config.return_value = builder
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=builder))
    name = "spark.sql.shuffle.partitions"
    for given, expected in (({}, "16"), ({name: "7"}, "7")):
        builder.config.reset_mock()
        session.build("local[16]", "job", given)
        assert [call.args[1] for call in builder.config.call_args_list if call.args[0] == name] == [expected]


def test_some_failures_no_restart_mends() -> None:
    assert final("oncelog.pipeline.sink.rows.RowError: topic null") == "topic null"
    assert final("oncelog.pipeline.source.offsets.DataLossError: X: gone") == (
        "X: gone. If the job now reads a different topic, give it a new checkpoint"
    )
    assert final("oncelog.client.errors.NetworkError: NETWORK_EXCEPTION: away") is None
    assert final("no reason was given") is None


def test_failures_name_their_place() -> None:
    for error, kinds, line in [
        (ConfigError("a.b", "is wrong"), (), "here: a.b: is wrong"),
        (KeyError("k"), (Exception,), "here: KeyError: 'k'"),
        (JobError("as it is"), (Exception,), "as it is"),
    ]:
        with pytest.raises(JobError) as told, as_job_error("here", kinds):
            raise error
        assert str(told.value) == line
    with pytest.raises(KeyError), as_job_error("here"):
        raise KeyError("a bug of ours")


def test_progress_is_read_as_it_is_written() -> None:
    for progress in (
        Progress("cleaned", 3, 49_999, 4582.0, 10_901, 286_777),
        Progress("my-sink", 0, 0, 0.0, 0, None),
        Progress("hourly", 12, 1_000_000, 1234.0, 1000, 0, 5563),
        Progress("hourly", 12, 1_000_000, 1234.0, 1000, 0, 5563, 1_234, 5),
        Progress("hourly", 12, 1_000_000, 1234.0, 1000, None, 0, 0, 5),
    ):
        assert Progress.read(str(progress)) == progress
    assert Progress.read("hourly: starting again after: x") is None
