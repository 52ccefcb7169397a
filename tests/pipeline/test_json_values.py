"""JSON sources: what is a bad record, what is a tombstone, and what becomes of both."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from oncelog.pipeline.jobs import spec
from oncelog.pipeline.jobs.failures import final, reason
from oncelog.pipeline.jobs.json_values import columns_of
from oncelog.pipeline.jobs.progress import Progress
from oncelog.pipeline.jobs.runner import JobRunner
from oncelog.pipeline.jobs.spec import JobError, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JSON = "id INT, name STRING, parts ARRAY<STRUCT<n: INT>>"
GOOD = [
    b'{"id":1,"name":"a"}',
    b"{}",
    b'  {"id":2}\n',
    b'{"id":3,"other":1}',
    b'{"id":null}',
    b'{"name":"} {"}',
    b'{"other":{"n":{}}, "id":null}',
    b'{"name":"\xc3\xa9"}',
    b'{"parts":[{"n":1},{"n":2}]}',
]
BAD = [
    b"not json",
    b"",
    b"  ",
    b"null",
    b"5",
    b'[{"id":1}]',
    b'{"id":1',
    b'{"id":"x","name":"b"}',
    b'{"id":1.5}',
    b'{"id":3000000000}',
    b'{"name":"\xff"}',
    b'{"id":1} garbage',
    b'{"id":1}{"id":2}',
    b'{"id":1},{"id":2}',
    b'{"parts":[{"n":1},{"n":"x"}]}',
]


def read(spark: SparkSession, values: list[bytes | None], columns: str = JSON, **policies: str) -> DataFrame:
    at = datetime.datetime(2026, 1, 1)
    rows = [(value, b"k", "orders", 2, 10 + number, at) for number, value in enumerate(values)]
    kinds = "value binary, key binary, topic string, partition int, offset bigint, timestamp timestamp"
    options: dict[str, Any] = dict(policies)
    source = Source(name="orders", json=columns, **options)
    return columns_of(spark.createDataFrame(rows, kinds), source)


def test_bad_records_are_told_from_good_ones_and_kept_as_they_are(spark: SparkSession) -> None:
    rows = read(spark, [*GOOD, *BAD], on_bad_record="keep").collect()
    assert [row._bad for row in rows] == [None] * len(GOOD) + [bytearray(value) for value in BAD]
    assert [(row.id, row.name, row.parts) for row in rows[len(GOOD) :]] == [(None, None, None)] * len(BAD)
    assert [row.id for row in rows[: len(GOOD)]] == [1, None, 2, 3, None, None, None, None, None]
    assert [row._offset for row in rows] == list(range(10, 10 + len(rows)))


def test_values_that_spark_converts_are_no_bad_records(spark: SparkSession) -> None:
    columns = "ratio DOUBLE, amount DECIMAL(10,2), note STRING"
    values = [b'{"ratio":1e400}', b'{"amount":1.239}', b'{"note":5}', b'{"note":{"a":[1]}}', b'{"amount":1e20}']
    rows = read(spark, [*values], columns, on_bad_record="keep").collect()
    assert [row._bad for row in rows] == [None] * 4 + [bytearray(values[4])]
    assert rows[0].ratio == math.inf
    assert rows[1].amount == decimal.Decimal("1.24")
    assert [row.note for row in rows[2:4]] == ["5", '{"a":[1]}']


def test_bad_records_are_dropped_if_the_job_says_so(spark: SparkSession) -> None:
    rows = read(spark, [*BAD, *GOOD, None], on_bad_record="drop").collect()
    assert [row._offset - 10 - len(BAD) for row in rows] == list(range(len(GOOD)))


@pytest.mark.parametrize("columns", ["id", "1 AS one"])
def test_the_first_bad_record_ends_the_query_whatever_is_selected(spark: SparkSession, columns: str) -> None:
    frame = read(spark, [GOOD[0], b'{"id":\n"x"}']).selectExpr(columns)
    with pytest.raises(Exception, match="BadRecord") as failed:
        frame.collect()
    assert final(reason(str(failed.value))) == (
        "source 'orders': the record at offset 11 of orders-2: the value is not JSON of the columns id:int,name:string,"
        'parts:array<struct<n:int>>: {"id": "x"}. Set on_bad_record = "drop", or "keep" to have it in the column _bad'
    )


def test_tombstones_are_no_bad_records(spark: SparkSession) -> None:
    values = [GOOD[0], None]
    assert [row._offset for row in read(spark, values).collect()] == [10]
    kept = read(spark, values, on_tombstone="keep").collect()
    assert [(row.id, row._tombstone, bytes(row._key)) for row in kept] == [(1, False, b"k"), (None, True, b"k")]
    with pytest.raises(Exception, match=r"the record at offset 11 of orders-2: the value is null\. Set on_tombstone"):
        read(spark, values, on_tombstone="fail").collect()


JOB = """
name = "json"
checkpoint = "{directory}/checkpoint"
trigger = "available-now"
[options]
"kafka.bootstrap.servers" = "{bootstrap}"
[[source]]
name = "orders"
options = {{ subscribe = "{source}", startingOffsets = "earliest" }}
json = "id BIGINT, name STRING"
{policy}
[[sink]]
name = "output"
from = "orders"
key = "id"
options = {{ topic = "{sink}" }}
"""


@pytest.mark.slow
def test_a_job_says_which_record_is_bad_and_counts_those_that_it_drops(
    spark: SparkSession, topics: Any, tmp_path: Path
) -> None:
    source, sink = topics.make("in"), topics.make("out")
    topics.send(source, ['{"id":1}', "not json", '{"id":"x"}', '{"id":4}'], partition=1)
    topics.tombstone(source, b"gone")

    def runner(policy: str, **listeners: Any) -> JobRunner:
        text = JOB.format(directory=tmp_path, bootstrap=topics.bootstrap, source=source, sink=sink, policy=policy)
        (tmp_path / "job.toml").write_text(text)
        return JobRunner(spark, spec.load(tmp_path / "job.toml"), **listeners)

    restarts: list[str] = []
    with pytest.raises(JobError) as failed:
        runner("", on_restart=lambda sink, why: restarts.append(why)).run()
    assert str(failed.value).startswith(
        f"sink 'output': source 'orders': the record at offset 1 of {source}-1: the value is not JSON of the columns "
        "id:bigint,name:string: not json. Set on_bad_record"
    )
    assert restarts == []
    assert topics.values(sink) == []

    progress: list[Progress] = []
    dropping = runner('on_bad_record = "drop"', on_progress=progress.append)
    dropping.run()
    assert sorted(json.loads(value)["id"] for value in topics.values(sink)) == [1, 4]
    assert [(one.rows, one.bad, one.tombstones) for one in progress] == [(5, 2, 1)]
    assert str(progress[0]).endswith(", 2 bad records, 1 tombstones")
    for name, count in (("bad_records", 2), ("tombstones", 1)):
        sample = dropping.metrics.registry.get_sample_value(f"oncelog_pipeline_{name}_total", {"query": "output"})
        assert sample == count


def test_bad_records_go_to_a_topic_of_their_own_in_the_same_transaction(
    spark: SparkSession, topics: Any, tmp_path: Path
) -> None:
    source, sink, dead = topics.make("in"), topics.make("out"), topics.make("dead")
    topics.send(source, ['{"id":1}', "not json", '{"id":3}'])
    text = JOB.format(directory=tmp_path, bootstrap=topics.bootstrap, source=source, sink="", policy="").replace(
        'from = "orders"\nkey = "id"\noptions = { topic = "" }', 'from = "routed"'
    )
    text = text.replace('name STRING"', 'name STRING"\non_bad_record = "keep"')
    sql = f"""
SELECT _key AS key, coalesce(_bad, cast(to_json(struct(id, name)) AS BINARY)) AS value,
       if(_bad IS NULL, '{sink}', '{dead}') AS topic
FROM orders"""
    text += f'[[transform]]\nname = "routed"\nsql = """{sql}"""\n'
    (tmp_path / "job.toml").write_text(text)
    progress: list[Progress] = []
    JobRunner(spark, spec.load(tmp_path / "job.toml"), on_progress=progress.append).run()
    assert topics.values(sink) == ['{"id":1}', '{"id":3}']
    assert topics.values(dead) == ["not json"]
    assert [one.bad for one in progress] == [1]


def test_a_policy_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    text = JOB.format(directory=tmp_path, bootstrap="b:1", source="s", sink="t", policy='on_bad_record = "ignore"')
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(JobError, match=r"source 'orders': on_bad_record must be fail, drop or keep, not 'ignore'"):
        spec.load(tmp_path / "job.toml")
