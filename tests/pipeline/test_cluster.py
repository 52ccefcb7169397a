"""The same job on a Spark standalone cluster: processes of their own for master, workers, executors and driver."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from oncelog import Producer
from oncelog.demo.processes import free_port
from oncelog.pipeline.requirements import java_problem
from support.documented_rules import documented_rules
from support.flights_job import FLIGHTS_JOB, flights_variables
from support.reading import make_topic, read_topic
from support.secure_broker import PASSWORD, SecureBroker
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


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.oncelog_only(reason="is about listeners with SASL")
def test_a_job_with_a_password_runs_on_a_cluster_that_shows_it_to_nobody(tmp_path: Path) -> None:
    """The executors log in, with the permissions of docs/pipeline.md. No file and no command line has the password."""
    count = 200
    with SecureBroker(tmp_path / "broker", "flights-job") as broker:
        for topic in ("flights", "late-flights"):
            make_topic(broker.address, topic, 4)
        make_topic(broker.address, "__oncelog_pipeline")
        broker.allow(*documented_rules("pipeline.md", "User:flights-job"))
        asyncio.run(_send_flights(broker.address, count))
        job = tmp_path / "job.toml"
        options = f'[spark]\n"spark.driver.extraJavaOptions" = "{QUICK}"\n'
        options += '"spark.eventLog.enabled" = "true"\n"spark.eventLog.compress" = "false"\n'
        events = tmp_path / "events"
        events.mkdir()
        options += f'"spark.eventLog.dir" = "file://{events}"\n"spark.driver.memory" = "600m"\n\n[[source]]'
        job.write_text((ROOT / "examples" / "secure_job.toml").read_text().replace("[[source]]", options, 1))
        variables = {"ONCELOG_BOOTSTRAP": broker.sasl_address, "CA": str(broker.authority.trusted)}
        environment = {**os.environ, **variables, "KAFKA_PASSWORD": PASSWORD}
        with SparkCluster(tmp_path) as cluster:
            command = [sys.executable, "-m", "oncelog.cli", "pipeline", "run", str(job), "--master", cluster.url]
            command += ["--var", f"CHECKPOINT={tmp_path / 'checkpoint'}"]
            seen: set[str] = set()
            output = tmp_path / "driver.log"
            with output.open("w") as log:
                driver = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
                try:
                    ends = time.monotonic() + 600
                    while driver.poll() is None and time.monotonic() < ends:
                        seen.update(_command_lines([psutil.Process(driver.pid), *cluster.processes()]))
                        time.sleep(0.2)
                finally:
                    driver.terminate()
                    driver.wait(30)
            assert driver.returncode == 0, output.read_text()
            told = cluster.last_words()
        found = read_topic(broker.address, "late-flights").values()
        assert sorted(json.loads(m.value() or b"")["flight"] for ms in found for m in ms) == list(range(0, count, 2))
    assert "executor app-" in told, told
    assert any("CoarseGrainedExecutorBackend" in line for line in seen), "no executor was seen"
    files = [path for path in tmp_path.rglob("*") if path.is_file() and tmp_path / "broker" not in path.parents]
    assert any(events in path.parents and b"late-flights" in path.read_bytes() for path in files)
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
    assert [line for line in seen if PASSWORD in line] == []


async def _send_flights(address: str, count: int) -> None:
    async with Producer(bootstrap_servers=address) as producer:
        for number in range(count):
            delay = 90 if number % 2 == 0 else 5
            flight = {"carrier": "UA", "flight": number, "tailnum": f"N{number}", "dest": "BOS", "arr_delay": delay}
            await producer.send("flights", json.dumps(flight).encode(), key=b"%d" % number)


def _command_lines(processes: Iterable[psutil.Process]) -> Iterator[str]:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            for one in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    yield " ".join(one.cmdline())


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
