"""Job files: what is refused before Spark starts, and the flights job against its expected results."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import pytest
from oncelog.demo.processes import free_port
from oncelog.pipeline.jobs import runner as runner_module
from oncelog.pipeline.jobs import spec
from oncelog.pipeline.jobs.batch_write import BatchWrite
from oncelog.pipeline.jobs.progress import Progress
from oncelog.pipeline.jobs.runner import JobRunner
from oncelog.pipeline.jobs.spec import JobError
from support.flights_job import FLIGHTS_JOB, flights_variables
from support.spark_archive import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def least_job(topic: str, directory: Path) -> str:
    """Return the text of the least job, which reads the topic from the beginning, with a checkpoint in `directory`."""
    text = LEAST.replace('"t"', f'"{topic}", startingOffsets = "earliest"')
    return text.replace('"c"', f'"{directory}/checkpoint"')


HEADER_WITHOUT_KEY = '["value", "array(struct(cast(null AS string) AS key, value)) AS headers"]'

SECOND = """
[[sink]]
name = "second"
from = "input"
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LEAST.replace("checkpoint", "chekpoint"), "there is no 'chekpoint'; did you mean checkpoint?"),
        (
            LEAST.replace('from = "input"', 'from = "inptu"'),
            "sink 'output': there is no frame 'inptu'; choose one of input",
        ),
        (LEAST.replace('from = "input"', ""), "sink 'output': from must be set"),
        (LEAST + 'output_mode = "add"', "output_mode must be append, update or complete"),
        (LEAST + 'trigger = "soon"', "'soon' is not a duration"),
        (LEAST + '[[transform]]\nname = "x"', "transform 'x' needs either sql or python"),
        (LEAST + '[[transform]]\nname = "input"\nsql = "x"', "two frames have the name 'input'"),
        (LEAST.replace('"c"', '"${NOWHERE_SET}"'), "${NOWHERE_SET} is not set: give --var NOWHERE_SET=..."),
        (LEAST + "tasks = 'many'", "tasks = 'many' is not of type int"),
        (LEAST + "tasks = false", "sink 'output': tasks = False is not of type int"),
        ("max_restarts = true\n" + LEAST, "max_restarts = True is not of type int"),
        ("max_restarts = false\n" + LEAST, "max_restarts = False is not of type int"),
        (LEAST.replace('from = "input"', "from = 3"), "sink 'output': from = 3 is not of type str"),
        (LEAST.replace("from = ", "frame = "), "sink 'output': there is no 'frame'; did you mean name?"),
        (LEAST + "x = 1", "sink 'output': there is no 'x'; choose one of name, from, format,"),
        (LEAST.replace("from = ", "fron = "), "sink 'output': there is no 'fron'; did you mean from?"),
        (LEAST.replace("[[sink]]", "from = 'a'\n[[sink]]"), "source 'input': there is no 'from'; did you mean format?"),
        ("sinks = []\n" + LEAST, "there is no 'sinks'; did you mean sink?"),
        ("directory = 'a'\n" + LEAST, "there is no 'directory'; choose one of name, checkpoint, source,"),
        ("name = ", "is not TOML"),
        (LEAST.replace('"c"', '""'), "checkpoint has no value"),
        (LEAST + "tasks = 0", "sink 'output': tasks must be at least 1, not 0"),
        (LEAST + "[options]\nx = [1]", "options: x = [1] is not a string, number or boolean"),
        ("options = 'x'" + LEAST, "options = 'x' is not a table"),
        ("source = 5\n" + LEAST.replace("[[source]]", "[x]"), "source is not a list of tables: write [[source]]"),
        (LEAST.replace("[[sink]]", "select = 'a'\n[[sink]]"), "select = 'a' is not a list of SQL expressions"),
        (LEAST.replace("[[sink]]", "watermark = 'a'\n[[sink]]"), "watermark = 'a' is not a table"),
        (
            "\n".join([LEAST, "options = { transactionalId = 'a' }", SECOND, "options = { transactionalId = 'a' }"]),
            "sinks 'output' and 'second' have transactionalId = 'a': give each sink its own in its options",
        ),
        (
            "options = { transactionalId = 'a' }" + LEAST + SECOND,
            "sinks 'output' and 'second' have transactionalId = 'a': give each sink its own in its options",
        ),
        (
            "options = { writeid = 'w' }" + LEAST + SECOND + "options = { writeId = ' w' }",
            "sinks 'output' and 'second' have writeId = 'w': give each sink its own in its options",
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(JobError) as refused:
        spec.load(tmp_path / "job.toml")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "second",
    ["options = { writeId = 'v' }", "options = { 'kafka.bootstrap.servers' = 'other:9092' }", "format = 'parquet'"],
)
def test_sinks_whose_ids_do_not_meet_may_be_in_one_job(tmp_path: Path, second: str) -> None:
    (tmp_path / "job.toml").write_text("options = { writeId = 'w' }" + LEAST + SECOND + second)
    assert len(spec.load(tmp_path / "job.toml").sinks) == 2


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[2,3]", "spark://a:7077,b:7077", "yarn", "k8s://https://a"]
)
def test_masters_that_spark_knows(master: str) -> None:
    spec.check_master(master)


@pytest.mark.parametrize("master", ["", "nonsense", "local[]", "localhost:7077", "spark://", "http://a:7077"])
def test_a_master_that_cannot_be_is_refused(master: str) -> None:
    with pytest.raises(JobError, match=r"is not the URL of a Spark master"):
        spec.check_master(master)


def test_variables_fill_in(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(LEAST.replace('"t"', '"${T}-${U:-u}"'))
    assert spec.load(tmp_path / "job.toml", {"T": "a"}).sources[0].options == {"subscribe": "a-u"}


def last_values(topics: Any, topic: str) -> dict[str, dict[str, Any]]:
    """The last value of each key."""
    return {one.key.decode(): json.loads(one.value) for one in topics.records(topic)}


@pytest.mark.slow
def test_the_flights_job_computes_what_plain_python_does(spark: SparkSession, topics: Any, tmp_path: Path) -> None:
    data = pytest.importorskip("oncelog.demo.flights")
    rows = list(data.flights(1200))
    airlines, airports = data.airline_names(), data.airport_names()
    variables = {**flights_variables(topics, tmp_path, 1200), "PER_BATCH": "800"}
    told: list[Progress] = []
    runner = JobRunner(spark, spec.load(FLIGHTS_JOB, variables), on_progress=told.append)
    described = runner.describe()
    assert "sink hourly (oncelog) from hourly: struct<key:string,value:string>" in described
    assert topics.records(variables["CLEANED"]) == []
    runner.run()

    cleaned = [json.loads(one.value) for one in topics.records(variables["CLEANED"])]
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
    found = last_values(topics, variables["HOURLY"])
    counted = ("flights", "cancelled", "departed", "dep_delay_minutes")
    assert {key: [value.get(name) or 0 for name in counted] for key, value in found.items()} == dict(hours)
    means = {dest: sum(delays) / len(delays) for dest, delays in late.items() if len(delays) >= 20}
    latest = sorted(means, key=lambda dest: (-means[dest], dest))[:10]
    listed = {dest: value["mean_arr_delay"] for dest, value in last_values(topics, variables["LATEST"]).items()}
    assert {dest: listed.get(dest) for dest in latest} == {dest: pytest.approx(means[dest]) for dest in latest}
    assert spark.read.parquet(str(tmp_path / "parquet")).count() == 1200
    assert {one.query for one in told} == {"cleaned", "hourly", "latest", "parquet"}
    assert sum(one.rows for one in told if one.query == "cleaned") == 1200


def test_the_job_in_the_readme_is_one(spark: SparkSession, tmp_path: Path) -> None:
    readme = Path(__file__).resolve().parents[2] / "README.md"
    (shown,) = re.findall(r"```toml\n(name = .*?)```", readme.read_text(), re.DOTALL)
    (tmp_path / "delays.toml").write_text(shown)
    described = JobRunner(spark, spec.load(tmp_path / "delays.toml")).describe()
    assert "hourly (stream): struct<id:string,flights:bigint,delay:double>" in described


@pytest.mark.parametrize(
    ("transform", "sink", "message"),
    [
        ('sql = "SELECT nope FROM input"', "", "transform 'made': [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column"),
        ('sql = "SELEC"', "", "transform 'made': [PARSE_SYNTAX_ERROR]"),
        ('python = "no_such_module_here:f"', "", "transform 'made': no_such_module_here:f cannot be imported"),
        ('python = "math:sqrt"', "", "transform 'made': TypeError: "),
        ('sql = "SELECT key FROM input"', "", "sink 'output': "),
        ('sql = "SELECT value FROM input"', 'key = "nope"', "sink 'output': [UNRESOLVED_COLUMN"),
        ('sql = "SELECT count(*) AS value FROM input"', 'json = true\noutput_mode = "append"', "sink 'output': "),
    ],
)
def test_a_job_that_spark_refuses_is_told_in_one_line(
    spark: SparkSession, topics: Any, tmp_path: Path, transform: str, sink: str, message: str
) -> None:
    text = LEAST.replace('from = "input"', f'from = "made"\noptions = {{ topic = "t" }}\n{sink}')
    text = f'{text}\n[[transform]]\nname = "made"\n{transform}\n'
    text += f'[options]\n"kafka.bootstrap.servers" = "{topics.bootstrap}"\n'
    (tmp_path / "job.toml").write_text(text.replace('"c"', f'"{tmp_path}/checkpoint"'))
    job = spec.load(tmp_path / "job.toml")
    with pytest.raises(JobError) as refused:
        JobRunner(spark, job).run()
    told = str(refused.value)
    assert told.startswith(message)
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("format", ["oncelog", "parquet"])
@pytest.mark.parametrize("mode", ["update", "complete"])
def test_an_output_mode_of_a_batch_frame_is_refused_before_anything_is_read(
    spark: SparkSession, tmp_path: Path, format: str, mode: str
) -> None:
    text = LEAST.replace('from = "input"', f'from = "made"\nformat = "{format}"\noutput_mode = "{mode}"')
    (tmp_path / "job.toml").write_text(
        f'{text}\n[[transform]]\nname = "made"\nsql = "SELECT \'a\' AS value"\n'
        '[options]\n"kafka.bootstrap.servers" = "127.0.0.1:1"\n'
    )
    with pytest.raises(JobError, match=f"^sink 'output': output_mode = '{mode}' is for streams, but 'made' is a batch"):
        JobRunner(spark, spec.load(tmp_path / "job.toml"))


def test_a_checkpoint_of_another_topic_is_refused_at_once(spark: SparkSession, topics: Any, tmp_path: Path) -> None:
    read, other, out = (topics.make(stem) for stem in ("read", "other", "out"))
    topics.send(read, ["a"])
    restarts: list[str] = []

    def run(topic: str) -> None:
        (tmp_path / "job.toml").write_text(
            least_job(topic, tmp_path) + f'options = {{ topic = "{out}" }}\ntrigger = "available-now"\n[options]\n'
            f'"kafka.bootstrap.servers" = "{topics.bootstrap}"\n'
        )
        JobRunner(spark, spec.load(tmp_path / "job.toml"), on_restart=lambda sink, why: restarts.append(why)).run()

    run(read)
    assert topics.values(out) == ["a"]
    topics.send(other, ["b"])
    with pytest.raises(JobError, match=r"^sink 'output': .* If the job now reads a different topic, give it a new"):
        run(other)
    assert restarts == []
    assert topics.values(out) == ["a"]


def test_a_spark_connect_server_is_refused_with_the_reason() -> None:
    with pytest.raises(JobError, match=r"'sc://a:15002' is a Spark Connect server, which cannot run job files: .*"):
        spec.check_master("sc://a:15002")


TOP_LEVEL = """
import pyarrow as pa
from {helper} import shout

def loud(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({{"value": [shout(value.decode()) for value in batch["value"].to_pylist()]}})

def transform(spark, frames):
    return frames["input"].select("value").mapInArrow(loud, "value string")
"""


def test_transforms_may_be_functions_of_modules_beside_the_job(
    spark: SparkSession, topics: Any, tmp_path: Path
) -> None:
    name, out = topics.make("loud"), topics.make("out")
    topics.send(name, ["a", "b"])
    (tmp_path / "loud_transform.py").write_text(TOP_LEVEL.format(helper="loud_helper"))
    (tmp_path / "loud_helper.py").write_text("def shout(text):\n    return text.upper()\n")
    text = least_job(name, tmp_path)
    text = text.replace('from = "input"', 'from = "loud"')
    (tmp_path / "job.toml").write_text(
        f'{text}options = {{ topic = "{out}" }}\ntrigger = "available-now"\n'
        '[[transform]]\nname = "loud"\npython = "loud_transform:transform"\n'
        f'[options]\n"kafka.bootstrap.servers" = "{topics.bootstrap}"\n'
    )
    waited: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner_module, "FIRST_S", 0.0)
        JobRunner(spark, spec.load(tmp_path / "job.toml"), on_waiting=waited.append).run()
    assert topics.values(out) == ["A", "B"]
    assert waited[0].startswith("output: waiting 0 s for the first micro-batch: ")


FLAKY = """
from pathlib import Path
from pyspark.sql.functions import udf

def flaky(spark, frames):
    failures = Path(__file__).with_suffix(".failures")

    @udf("string")
    def passed(value):
        left = int(failures.read_text())
        if left:
            failures.write_text(str(left - 1))
            raise ValueError("not yet")
        return value

    return frames["input"].select(passed(frames["input"].value.cast("string")).alias("value"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("failures", [2, 3])
def test_a_query_that_fails_is_started_again_so_often(
    spark: SparkSession, topics: Any, tmp_path: Path, failures: int
) -> None:
    name, out = topics.make("flaky"), topics.make("out")
    topics.send(name, ["a"])  # one task: each failure is one of the query
    module = f"flaky_{failures}"  # its own: modules are imported once
    (tmp_path / f"{module}.py").write_text(FLAKY)
    (tmp_path / f"{module}.failures").write_text(str(failures))
    (tmp_path / "job.toml").write_text(
        "max_restarts = 2\n"
        + least_job(name, tmp_path)
        + f'options = {{ topic = "{out}" }}\ntasks = 1\ntrigger = "available-now"\n'
        f'[[transform]]\nname = "passed"\npython = "{module}:flaky"\n'
        f'[options]\n"kafka.bootstrap.servers" = "{topics.bootstrap}"\n'
    )
    text = (tmp_path / "job.toml").read_text().replace('from = "input"', 'from = "passed"')
    (tmp_path / "job.toml").write_text(text)
    told: list[str] = []
    runner = JobRunner(spark, spec.load(tmp_path / "job.toml"), on_restart=lambda sink, why: told.append(why))
    if failures == 2:
        runner.run()
        assert topics.values(out) == ["a"]
    else:
        with pytest.raises(
            JobError, match=r"failed 3 times within 10 minutes \(max_restarts = 2\); .* ValueError: not yet$"
        ):
            runner.run()
        assert topics.values(out) == []
    assert told == ["ValueError: not yet"] * 2
    assert runner.metrics.registry.get_sample_value("oncelog_pipeline_restarts_total", {"query": "output"}) == 2


def test_spark_s_retries_of_a_task_do_not_hide_why_it_failed(topics: Any, tmp_path: Path) -> None:
    """On a cluster, Spark runs a failed task four times."""
    name, out = topics.make("retried"), topics.make("out")
    topics.send(name, ["a", "b"])
    (tmp_path / "job.toml").write_text(
        least_job(name, tmp_path).replace("[[sink]]", f"select = {HEADER_WITHOUT_KEY}\n[[sink]]")
        + f'options = {{ topic = "{out}" }}\ntrigger = "available-now"\n[options]\n'
        f'"kafka.bootstrap.servers" = "{topics.bootstrap}"\n[spark]\n"spark.driver.extraJavaOptions" = "{QUICK}"\n'
    )
    command = [sys.executable, "-m", "oncelog.cli", "pipeline", "run", str(tmp_path / "job.toml")]
    job = subprocess.run(
        [*command, "--master=local[2,4]", "--quiet"], capture_output=True, text=True, timeout=120, check=False
    )
    assert job.returncode == 1
    reported = [line for line in job.stderr.splitlines() if "incubator modules" not in line]
    assert len(reported) == 1, "a restart cannot fix it"
    assert reported[0].startswith("oncelog: sink 'output': a header in the column headers has no key")
    assert topics.values(out) == []


MANY_ROWS = "spark.range(200000).selectExpr('cast(id AS string) AS value')"


def test_a_batch_write_is_stopped_and_other_sinks_run_meanwhile(
    spark: SparkSession, topics: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = batch_and_stream(topics, tmp_path, MANY_ROWS)
    monkeypatch.setattr(runner_module, "FIRST_S", 0.0)
    waited: list[str] = []
    noticed: list[str] = []

    def stop_when_the_write_has_begun(progress: Progress) -> None:
        topics.wait_until(lambda: topics.end_of(job.batch) > 0)
        runner.stop()

    runner = JobRunner(
        spark,
        spec.load(job.path),
        on_progress=stop_when_the_write_has_begun,
        on_notice=noticed.append,
        on_waiting=waited.append,
    )
    runner.run()
    assert topics.values(job.stream) == ["a", "b"]
    assert topics.records(job.batch) == [], "its transaction is aborted"
    assert any(re.match(r"batch: waiting \d+ s for the batch write: writing", line) for line in waited)
    assert noticed == ["batch: the batch write was stopped, and nothing is written"]


def test_a_batch_write_that_spark_does_not_stop_in_time_leaves_no_transaction_open(
    spark: SparkSession, topics: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = batch_and_stream(topics, tmp_path, MANY_ROWS)
    monkeypatch.setattr(runner_module, "_stop_query", lambda query: None if type(query) is BatchWrite else query.stop())
    noticed: list[str] = []

    def stop_when_the_write_has_begun(progress: Progress) -> None:
        topics.wait_until(lambda: topics.end_of(job.batch) > 0)
        runner.stop()

    runner = JobRunner(spark, spec.load(job.path), on_progress=stop_when_the_write_has_begun, on_notice=noticed.append)
    runner.run()
    assert topics.records(job.batch) == []
    assert noticed == ["batch: the batch write was stopped, and nothing is written"]


@pytest.mark.parametrize(
    ("rows", "outcome"),
    [
        ("spark.range(3).selectExpr('cast(id AS string) AS value')", "the batch write is committed"),
        (
            f"spark.range(3).selectExpr('CAST(string(id) AS binary) AS value').selectExpr(*{HEADER_WITHOUT_KEY})",
            "the batch write has failed, and nothing is written: oncelog.pipeline.sink.rows.RowError: a header in the ",
        ),
    ],
)
def test_a_stopped_job_reports_a_batch_write_that_has_just_ended(
    spark: SparkSession, topics: Any, tmp_path: Path, rows: str, outcome: str
) -> None:
    job = batch_and_stream(topics, tmp_path, rows)
    noticed: list[str] = []

    def stop_when_the_write_has_ended(progress: Progress) -> None:
        topics.wait_until(lambda: all(thread.name != "batch write" for thread in threading.enumerate()))
        runner.stop()

    runner = JobRunner(spark, spec.load(job.path), on_progress=stop_when_the_write_has_ended, on_notice=noticed.append)
    runner._look_at_write = lambda one, write: True  # type: ignore[method-assign]  # the job has not looked yet
    runner.run()
    (notice,) = noticed
    assert notice.startswith(f"batch: {outcome}")
    assert topics.values(job.batch) == (["0", "1", "2"] if "committed" in outcome else [])


class BatchAndStream(NamedTuple):
    """A job that writes a batch frame to the topic `batch`, and the values "a" and "b" of a stream to `stream`."""

    path: Path
    batch: str
    stream: str


def batch_and_stream(topics: Any, directory: Path, rows: str, spark: str = "") -> BatchAndStream:
    name, batch, out = topics.make("beside"), topics.make("batch"), topics.make("out")
    topics.send(name, ["a", "b"])
    module = f"rows_of_{batch}".replace("-", "_")  # modules are imported once
    (directory / f"{module}.py").write_text(f"def rows(spark, frames):\n    return {rows}\n")
    text = least_job(name, directory)
    (directory / "job.toml").write_text(
        text.replace(
            "[[sink]]",
            f'[[transform]]\nname = "rows"\npython = "{module}:rows"\n'
            # One request for each record: many rows take a long time.
            f'[[sink]]\nname = "batch"\nfrom = "rows"\ntasks = 1\n'
            f'options = {{ topic = "{batch}", "kafka.batch.size" = "1" }}\n'
            "[[sink]]",
        )
        + f'options = {{ topic = "{out}" }}\n[options]\n"kafka.bootstrap.servers" = "{topics.bootstrap}"\n{spark}'
    )
    return BatchAndStream(directory / "job.toml", batch, out)


@pytest.mark.parametrize("who", ["all", pytest.param("jvm", marks=pytest.mark.slow)])
def test_a_batch_write_whose_jvm_has_ended_leaves_no_transaction_open(topics: Any, tmp_path: Path, who: str) -> None:
    """As a service manager stops a job, which signals all processes, and as the system kills one that needs memory."""
    job = batch_and_stream(
        topics,
        tmp_path,
        "spark.range(2000000).selectExpr('cast(id AS string) AS value')",
        f'[spark]\n"spark.driver.extraJavaOptions" = "{QUICK}"\n',
    )
    command = [sys.executable, "-m", "oncelog.cli", "pipeline", "run", str(job.path), "--master=local[2]", "--quiet"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            topics.wait_until(lambda: topics.end_of(job.batch) > 0)
            if who == "all":
                os.killpg(process.pid, signal.SIGTERM)
            else:
                (jvm,) = (child for child in psutil.Process(process.pid).children() if child.name() == "java")
                jvm.kill()
            _, errors = process.communicate(timeout=60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == (0 if who == "all" else 1)
    assert "oncelog: batch: the batch write was stopped, and nothing is written\n" in errors
    assert topics.records(job.batch) == []


def test_a_batch_write_that_fails_ends_the_job_with_the_reason(
    spark: SparkSession, topics: Any, tmp_path: Path
) -> None:
    name = topics.make("read")
    topics.send(name, ["a"])
    (tmp_path / "job.toml").write_text(
        LEAST.replace('"t"', f'"{name}"')
        .replace('"c"', f'"{tmp_path}/checkpoint"')
        .replace("[[sink]]", f"stream = false\nselect = {HEADER_WITHOUT_KEY}\n[[sink]]")
        + f'options = {{ topic = "{topics.make("out")}" }}\n'
        f'[options]\n"kafka.bootstrap.servers" = "{topics.bootstrap}"\n'
    )
    with pytest.raises(JobError, match=r"^sink 'output': a header in the column headers has no key"):
        JobRunner(spark, spec.load(tmp_path / "job.toml")).run()


def test_a_batch_frame_is_written_by_each_run_of_a_job_unless_its_sink_has_a_write_id(
    spark: SparkSession, topics: Any, tmp_path: Path
) -> None:
    name, out, once = topics.make("read"), topics.make("out"), topics.make("once")
    topics.send(name, ["a"])
    (tmp_path / "job.toml").write_text(
        LEAST.replace('"t"', f'"{name}"')
        .replace('"c"', f'"{tmp_path}/checkpoint"')
        .replace("[[sink]]", "stream = false\n[[sink]]")
        + f'options = {{ topic = "{out}" }}\n'
        + SECOND
        + f'options = {{ topic = "{once}", writeId = "{topics.fresh_name("write")}" }}\n'
        f'[options]\n"kafka.bootstrap.servers" = "{topics.bootstrap}"\n'
    )
    for _ in range(2):
        JobRunner(spark, spec.load(tmp_path / "job.toml")).run()
    assert topics.values(out) == ["a", "a"]
    assert topics.values(once) == ["a"]


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_a_job_is_stopped_with_all_its_processes(topics: Any, tmp_path: Path, number: int) -> None:
    """As a service manager or a terminal does it: each process gets the signal, the JVM too."""
    name = topics.make("stopped")
    topics.send(name, ["a", "b"])
    (tmp_path / "job.toml").write_text(
        least_job(name, tmp_path) + f'options = {{ topic = "{topics.make("out")}" }}\n[options]\n'
        f'"kafka.bootstrap.servers" = "{topics.bootstrap}"\n[spark]\n"spark.driver.extraJavaOptions" = "{QUICK}"\n'
    )
    metrics = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "oncelog.cli", "pipeline", "run", str(tmp_path / "job.toml")]
    command += ["--master=local[1]", f"--metrics={metrics}"]
    with (
        (tmp_path / "errors").open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True) as job,
    ):
        assert job.stdout is not None
        try:
            assert job.stdout.readline().startswith("output: batch 0, 2 rows in ")
            with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=30) as answer:
                measured = answer.read().decode().splitlines()
            for sample in ("rows_total 2.0", "batches_total 1.0", "batch 0.0", "lag 0.0"):
                metric, value = sample.split()
                assert f'oncelog_pipeline_{metric}{{query="output"}} {value}' in measured
            os.killpg(job.pid, number)
            assert job.wait(60) == 0
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
        assert job.stdout.read() == ""
    expected = ("incubator modules", "waiting ")
    told = [line for line in (tmp_path / "errors").read_text().splitlines() if not any(one in line for one in expected)]
    assert told == []
