"""The same job on a Spark standalone cluster: processes of their own for master, workers, executors and driver."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from oncelog.demo.processes import free_port
from oncelog.pipeline.requirements import java_problem
from support.flights_job import FLIGHTS_JOB, flights_variables
from support.spark_archive import QUICK
from support.spark_cluster import SparkCluster

ROOT = Path(__file__).resolve().parents[2]
START_S = 90.0

pytestmark = pytest.mark.skipif(java_problem() is not None, reason=str(java_problem()))


@pytest.mark.slow  # master, two workers, two executors and a driver: a minute, on two cores
@pytest.mark.timeout(900)
def test_the_flights_job_runs_on_a_cluster(topics: Any, tmp_path: Path) -> None:
    variables = {**flights_variables(topics, tmp_path, 300), "MEMORY": "600m"}
    job = tmp_path / "flights.toml"
    quick = f'"spark.driver.extraJavaOptions" = "{QUICK}"\n"spark.executor.extraJavaOptions" = "{QUICK}"\n'
    job.write_text(FLIGHTS_JOB.read_text().replace("[spark]\n", f"[spark]\n{quick}"))
    with SparkCluster(tmp_path) as cluster:
        command = [sys.executable, "-m", "oncelog.cli", "pipeline", "run", str(job), "--master", cluster.url]
        for name, value in variables.items():
            command += ["--var", f"{name}={value}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        told = cluster.last_words()
    assert sorted(json.loads(one.value)["row"] for one in topics.records(variables["CLEANED"])) == list(range(300))
    assert "application flights begins as app-" in told
    assert told.count("executor app-") >= 2, told


# -- docker-compose.yml says how each of its processes is started: the same, here, and other ports


def compose_commands() -> dict[str, list[str]]:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return {name: shlex.split(one["command"]) for name, one in services.items() if one.get("profiles") == ["spark"]}


def test_the_compose_file_has_a_master_and_two_workers_with_our_own_spark() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    spark = {name: one for name, one in services.items() if one.get("profiles") == ["spark"]}
    assert list(spark) == ["spark-master", "spark-worker-1", "spark-worker-2"]
    stages = [line.split()[-1] for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("FROM")]
    assert stages[-1] == "broker", "docker build without --target makes the broker"
    for one in spark.values():
        assert one["build"]["target"] in stages
        assert one["network_mode"] == "service:broker"
        assert one["volumes"] == ["pipeline-data:/var/lib/oncelog/pipeline"]
    pages = [command[command.index("--webui-port") + 1] for command in compose_commands().values()]
    assert len(set(pages)) == len(pages), "they share the broker's network: each page needs a port of its own"


@pytest.mark.slow
def test_the_commands_of_the_compose_file_make_a_cluster(tmp_path: Path) -> None:
    port = free_port()
    with ExitStack() as stack:
        for name, command in compose_commands().items():
            command[0] = str(Path(sys.executable).parent / command[0])
            told = [one.replace("7077", str(port)) for one in command]
            told[told.index("--webui-port") + 1] = "0"
            if "--work-dir" in told:
                told[told.index("--work-dir") + 1] = str(tmp_path / name)
            up = "Successfully registered with master" if "worker" in name else "New state: ALIVE"
            stack.enter_context(running(told, tmp_path / f"{name}.log", up))
        assert (tmp_path / "spark-master.log").read_text().count("Registering worker localhost:") == 2


@contextmanager
def running(command: list[str], log: Path, up: str) -> Iterator[None]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}  # as the image has it: spark-class asks it for Spark
    assert "ENV PYSPARK_PYTHON=" in (ROOT / "Dockerfile").read_text()
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment) as process,
    ):
        try:
            deadline = time.monotonic() + START_S
            while up not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            yield
        finally:
            process.terminate()


def test_the_probe_of_the_compose_file_tells_a_master_that_listens() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    _, _, *probe = services["spark-master"]["healthcheck"]["test"]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
        probe = [one.replace("7077", port) for one in probe]
        assert subprocess.run([sys.executable, *probe], timeout=30, check=False).returncode == 0
    assert subprocess.run([sys.executable, *probe], timeout=30, check=False, stderr=subprocess.DEVNULL).returncode
