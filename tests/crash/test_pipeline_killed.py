"""kill -9 of driver, JVM, Python workers and broker under a pipeline job: every row once, in both topics."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.broker import BrokerProcess

pytest.importorskip("pyspark")

from oncelog.pipeline.requirements import java_problem
from support.pipeline_kills import PipelineKills

needs_java = pytest.mark.skipif(java_problem() is not None, reason=str(java_problem()))


def killed(directory: Path, seed: int, kills: int, rows: int) -> None:
    with (
        BrokerProcess(directory / "broker", "--durability", "os") as broker,
        PipelineKills(broker, directory, seed, rows=rows) as job,
    ):
        job.run(kills)
        job.verify()
        print(f"seed {seed}: killed {dict(job.killed)}")


@needs_java
@pytest.mark.timeout(600)
def test_six_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    killed(tmp_path, random.SystemRandom().randrange(1_000_000), kills=6, rows=1000)


@needs_java
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("round_number", range(10))
def test_many_kills_lose_and_double_nothing(tmp_path: Path, round_number: int) -> None:
    killed(tmp_path, 5000 + round_number, kills=20, rows=10_000)
