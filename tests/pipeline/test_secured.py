"""Source and sink over SASL_SSL: with the permissions of docs/pipeline.md, and with a password that stays secret."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from oncelog import Acl, Producer
from oncelog.pipeline import write, write_stream
from support.documented_rules import documented_rules
from support.reading import make_topic, read_topic
from support.secure_broker import PASSWORD, SecureBroker
from support.spark_archive import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.oncelog_only(reason="is about listeners with SASL")

USER = "flights-job"
RULES = documented_rules("pipeline.md", f"User:{USER}")
COUNT = 30


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(tmp_path_factory.mktemp("secure"), USER) as broker:
        for topic in ("flights", "late-flights"):
            make_topic(broker.address, topic, 2)
        make_topic(broker.address, "__oncelog_pipeline")
        asyncio.run(_send(broker))
        yield broker


async def _send(broker: SecureBroker) -> None:
    async with Producer(bootstrap_servers=broker.address) as producer:
        for number in range(COUNT):
            await producer.send("flights", b"%d" % number)


def options(broker: SecureBroker) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.sasl_address,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": str(broker.authority.trusted),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": USER,
        "kafka.sasl.password": PASSWORD,
    }


def copy(spark: SparkSession, broker: SecureBroker, checkpoint: Path) -> StreamingQuery:
    """Run a query that copies all flights."""
    kafka = options(broker)
    source = {**kafka, "subscribe": "flights", "startingOffsets": "earliest"}
    flights = spark.readStream.format("oncelog").options(**source).load().select("key", "value")
    sink = {"topic": "late-flights", "transactionalId": "late-flights-job", "checkpointLocation": str(checkpoint)}
    query = write_stream(flights, {**kafka, **sink}).trigger(availableNow=True).start()
    query.awaitTermination(120)
    return query


def plans(spark: SparkSession) -> list[str]:
    """Return the plans of all queries so far, as Spark's UI and its event log have them."""
    session: Any = spark._jsparkSession
    executions = session.sharedState().statusStore().executionsList()
    return [str(executions.apply(number).physicalPlanDescription()) for number in range(executions.size())]


def command_lines(without: int) -> list[str]:
    """Return the arguments of this process and its children, except for one."""
    lines = []
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            if process.pid != without:
                lines.append(" ".join(process.cmdline()))
    return lines


@pytest.mark.slow
def test_the_documented_rules_are_enough_and_the_password_stays_secret(
    spark: SparkSession, broker: SecureBroker, tmp_path: Path
) -> None:
    broker.allow(*RULES)
    before = len(read_values(broker))
    query = copy(spark, broker, tmp_path / "checkpoint")
    java_query: Any = query._jsq
    shown = [java_query.explainInternal(True), *(str(progress) for progress in query.recentProgress)]
    write_options = {**options(broker), "topic": "late-flights", "transactionalId": "late-flights-job"}
    write(spark.range(3).selectExpr("cast(id AS string) AS value"), write_options)
    assert len(read_values(broker)) == before + COUNT + 3
    shown += plans(spark)
    shown += [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    shown += command_lines(without=broker.pid)
    assert any("late-flights" in text for text in shown)
    assert [text for text in shown if PASSWORD in text] == []


def read_values(broker: SecureBroker) -> list[bytes | None]:
    records = read_topic(broker.address, "late-flights").values()
    return [message.value() for messages in records for message in messages]


@pytest.mark.slow
@pytest.mark.parametrize("missing", RULES, ids=lambda rule: f"{rule.operation}-{rule.kind}-{rule.name}")
def test_the_error_names_what_is_not_allowed(
    spark: SparkSession, broker: SecureBroker, tmp_path: Path, missing: Acl
) -> None:
    broker.allow(*(rule for rule in RULES if rule != missing))
    with pytest.raises(Exception, match=f"{missing.kind}_AUTHORIZATION_FAILED: .*{missing.name}"):
        copy(spark, broker, tmp_path / "checkpoint")


@pytest.mark.slow
def test_the_error_of_a_task_that_may_not_write_is_reported_although_spark_retries_tasks(
    broker: SecureBroker, tmp_path: Path
) -> None:
    broker.allow(*(rule for rule in RULES if (rule.operation, rule.name) != ("WRITE", "late-flights")))
    settings = "\n".join(f'"{name}" = "{value}"' for name, value in options(broker).items())
    (tmp_path / "job.toml").write_text(
        f'name = "flights"\ncheckpoint = "{tmp_path}/checkpoint"\ntrigger = "available-now"\nmax_restarts = 0\n'
        '[[source]]\nname = "flights"\noptions = { subscribe = "flights", startingOffsets = "earliest" }\n'
        '[[sink]]\nname = "late"\nfrom = "flights"\n'
        'options = { topic = "late-flights", transactionalId = "late-flights-job" }\n'
        f'[options]\n{settings}\n[spark]\n"spark.driver.extraJavaOptions" = "{QUICK}"\n'
    )
    command = [sys.executable, "-m", "oncelog.cli", "pipeline", "run", str(tmp_path / "job.toml")]
    job = subprocess.run([*command, "--master=local[1,4]"], capture_output=True, text=True, timeout=120, check=False)
    assert job.returncode == 1
    assert "AuthorizationError: TOPIC_AUTHORIZATION_FAILED: late-flights" in job.stderr
