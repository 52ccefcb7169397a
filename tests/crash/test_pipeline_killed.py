"""kill -9 of driver, JVM, Python workers, executors, workers and broker under a pipeline job: every row once, in both
topics, and checkpoint and sink agree."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path

import pytest
from oncelog.demo.processes import free_port
from support.apache_kafka import ApacheKafka
from support.broker import BrokerProcess

pytest.importorskip("pyspark")

from oncelog.pipeline.requirements import java_problem
from support.pipeline_kills import PipelineKills
from support.spark_cluster import SparkCluster

needs_java = pytest.mark.skipif(java_problem() is not None, reason=str(java_problem()))
needs_maven = pytest.mark.skipif(shutil.which("mvn") is None, reason="Apache Kafka comes by Maven: needs mvn")


def killed(
    directory: Path, seed: int, kills: int, *, on_cluster: bool = False, kafka: bool = False, make_archive: bool = True
) -> None:
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(SparkCluster(directory, "--memory", "512m")) if on_cluster else None
        broker: BrokerProcess | ApacheKafka = BrokerProcess(directory / "broker", "--durability", "os")
        if kafka:
            broker = ApacheKafka(directory / "broker", heap="400m")
            broker.port, broker.controller_port = free_port(), free_port()  # that no outgoing connection takes
        stack.enter_context(broker)
        job = PipelineKills(broker, directory, seed, cluster=cluster, make_archive=make_archive)
        stack.enter_context(job)
        job.run(kills)
        job.verify()
        print(job)


@needs_java
@pytest.mark.timeout(600)
def test_three_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    killed(tmp_path, random.SystemRandom().randrange(1_000_000), kills=3, make_archive=False)


@needs_java
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("round_number", range(10))
def test_twenty_kills_each_lose_and_double_nothing(tmp_path: Path, round_number: int) -> None:
    killed(tmp_path, 5000 + round_number, kills=20)


@needs_java
@needs_maven
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("round_number", range(2))
def test_twenty_kills_each_with_apache_kafka_lose_and_double_nothing(tmp_path: Path, round_number: int) -> None:
    killed(tmp_path, 6000 + round_number, kills=20, kafka=True)


@needs_java
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_kills_on_a_cluster_lose_and_double_nothing(tmp_path: Path) -> None:
    killed(tmp_path, 7000, kills=20, on_cluster=True)
