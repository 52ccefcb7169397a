"""Job files: what is refused before Spark starts, and the flights job against the plain computation of its results."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from oncelog.pipeline import job_spec
from oncelog.pipeline.job_progress import Progress
from oncelog.pipeline.job_runner import JobRunner, _reason
from oncelog.pipeline.job_spec import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLIGHTS_JOB = Path(job_spec.__file__).parent / "jobs" / "flights.toml"
LEAST = """
name = "least"
checkpoint = "c"
[[source]]
name = "input"
options = { subscribe = "t" }
[[sink]]
name = "output"
from = "input"
"""


def test_a_failure_is_told_in_one_line() -> None:
    spark = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted\n"
        "Traceback (most recent call last):\n  File x\n    raise Y\n"
        "oncelog.pipeline.sink.PartitionConflictError: t-0 was written by tasks 0 and 1\n"
        "=== Streaming Query ===\n+- a plan\nJVM stacktrace: java.lang.Exception: x"
    )
    assert _reason(spark) == "oncelog.pipeline.sink.PartitionConflictError: t-0 was written by tasks 0 and 1"
    assert _reason("[A] b\nc") == "[A] b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LEAST.replace("checkpoint", "chekpoint"), "there is no 'chekpoint'; did you mean checkpoint?"),
        (LEAST.replace('from = "input"', 'from = "inptu"'), "sink 'output': there is no frame 'inptu', only input"),
        (LEAST.replace('from = "input"', ""), "sink 'output': from is missing"),
        (LEAST + 'output_mode = "add"', "output_mode is append, update or complete"),
        (LEAST + 'trigger = "soon"', "'soon' is no duration"),
        (LEAST + '[[transform]]\nname = "x"', "transform 'x' needs either sql or python"),
        (LEAST + '[[transform]]\nname = "input"\nsql = "x"', "two frames 'input'"),
        (LEAST.replace('"c"', '"${NOWHERE_SET}"'), "${NOWHERE_SET} is not set: give --var NOWHERE_SET=..."),
        (LEAST + "tasks = 'many'", "tasks = 'many' is no int"),
        ("name = ", "is no TOML"),
    ],
)
def test_a_job_that_cannot_be_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(JobError) as refused:
        job_spec.load(tmp_path / "job.toml")
    assert message in str(refused.value)


def test_variables_fill_in(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(LEAST.replace('"t"', '"${T}-${U:-u}"'))
    assert job_spec.load(tmp_path / "job.toml", {"T": "a"}).sources[0].options == {"subscribe": "a-u"}


def last_values(topics: Any, topic: str) -> dict[str, dict[str, Any]]:
    """The last value of each key."""
    return {one.key.decode(): json.loads(one.value) for one in topics.records(topic)}


def test_the_flights_job_computes_what_plain_python_does(spark: SparkSession, topics: Any, tmp_path: Path) -> None:
    data = pytest.importorskip("oncelog.demo.flights")
    rows = list(data.flights(1200))
    airlines, airports = data.airline_names(), data.airport_names()
    names = {name: topics.make(name.lower()) for name in ("FLIGHTS", "CLEANED", "HOURLY", "LATEST")}
    topics.send(names["FLIGHTS"], [data.flight_record(row)[1].decode() for row in rows])
    variables = {
        **names,
        "BOOTSTRAP": topics.bootstrap,
        "CHECKPOINT": str(tmp_path / "checkpoint"),
        "TABLES": str(data.directory()),
        "PARQUET": str(tmp_path / "parquet"),
        "PER_BATCH": "800",
        "LEAST": "20",
    }
    told: list[Progress] = []
    runner = JobRunner(spark, job_spec.load(FLIGHTS_JOB, variables), on_progress=told.append)
    described = runner.describe()
    assert "sink hourly (oncelog) from hourly: struct<key:string,value:string>" in described
    assert topics.records(names["CLEANED"]) == []
    runner.run()

    cleaned = [json.loads(one.value) for one in topics.records(names["CLEANED"])]
    assert sorted(one["row"] for one in cleaned) == list(range(1200))
    by_row = {one["row"]: one for one in cleaned}
    hours: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    late: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        one = by_row[row["row"]]
        assert one["airline"] == airlines[row["carrier"]]
        assert one.get("dest_name") == airports.get(row["dest"])
        assert one["outcome"] == data.delay_class(row)
        hour = hours[f"{row['origin']}@{row['time_hour'][:13]}"]
        hour[0] += 1
        hour[1] += row["dep_time"] is None
        hour[2] += row["dep_delay"] is not None
        hour[3] += row["dep_delay"] or 0
        if row["arr_delay"] is not None:
            late[row["dest"]].append(row["arr_delay"])
    found = last_values(topics, names["HOURLY"])
    counted = ("flights", "cancelled", "departed", "dep_delay_minutes")
    assert {key: [value.get(name) or 0 for name in counted] for key, value in found.items()} == dict(hours)
    means = {dest: sum(delays) / len(delays) for dest, delays in late.items() if len(delays) >= 20}
    latest = sorted(means, key=lambda dest: (-means[dest], dest))[:10]
    listed = {dest: value["mean_arr_delay"] for dest, value in last_values(topics, names["LATEST"]).items()}
    assert {dest: listed.get(dest) for dest in latest} == {dest: pytest.approx(means[dest]) for dest in latest}
    assert spark.read.parquet(str(tmp_path / "parquet")).count() == 1200
    assert {one.query for one in told} == {"cleaned", "hourly", "latest", "parquet"}
    assert sum(one.rows for one in told if one.query == "cleaned") == 1200
