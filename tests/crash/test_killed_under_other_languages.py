"""kill -9 of the broker, and of the client, under clients of other languages: nothing lost, doubled, torn or stuck."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.broker import BrokerProcess
from support.foreign_workload import ForeignWorkload

CLIENTS = Path(__file__).resolve().parents[1] / "interop" / "clients"
KILLS = 4
pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def build(*command: str, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{' '.join(command)[:200]}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


def java(home: Path) -> list[str]:
    need("java", "javac", "mvn")
    from support.apache_kafka import class_path, jvm_options

    build("javac", "-cp", class_path(), "-d", str(home), str(CLIENTS / "java" / "UnderKills.java"), cwd=home)
    return ["java", *jvm_options("256m"), "-cp", f"{home}:{class_path()}", "UnderKills"]


def go(home: Path, package: str) -> list[str]:
    need("go")
    shutil.copytree(CLIENTS / "go", home, dirs_exist_ok=True)
    build("go", "build", "-o", "program", f"./{package}", cwd=home)
    return ["./program"]


def javascript(home: Path) -> list[str]:
    need("node", "npm")
    shutil.copytree(CLIENTS / "js", home, dirs_exist_ok=True)
    build("npm", "install", "--silent", "--no-package-lock", cwd=home)
    return ["node", "under_kills.js"]


def python(client: str) -> list[str]:
    return [sys.executable, str(CLIENTS / "python" / f"under_kills_{client}.py")]


@dataclass(frozen=True)
class Language:
    prepare: Callable[[Path], list[str]]


Program = tuple[str, list[str], Path]
LANGUAGES = {
    "java": Language(java),
    "kafkajs": Language(javascript),
    "aiokafka": Language(lambda _: python("aiokafka")),
    "kafka-python": Language(lambda _: python("kafka_python")),
    "franz-go": Language(lambda home: go(home, "underkills")),
    "sarama": Language(lambda home: go(home, "underkills_sarama")),
}


@pytest.fixture(scope="session", params=LANGUAGES)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """(language, command, directory to run it in), built once."""
    home = tmp_path_factory.mktemp(request.param)
    return request.param, LANGUAGES[request.param].prepare(home), home


SMALL_SEGMENTS = {
    # Kills meet rolls, and compactions of the internal topics.
    "log.segment.bytes": "16384",
    "transaction.state.log.segment.bytes": "16384",
    "offsets.topic.segment.bytes": "16384",
    "log.cleaner.backoff.ms": "100",
}


def broker_in(
    request: pytest.FixtureRequest, directory: Path, durability: str, settings: dict[str, str]
) -> AbstractContextManager[Any]:
    if request.config.getoption("--kafka"):
        from support.apache_kafka import ApacheKafka

        return ApacheKafka(directory)
    flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return BrokerProcess(directory, "--durability", durability, *flags)


@contextlib.contextmanager
def workload(
    request: pytest.FixtureRequest,
    program: Program,
    directory: Path,
    durability: str,
    settings: dict[str, str] | None = None,
) -> Iterator[ForeignWorkload]:
    """Let it run in the block; it is verified behind it."""
    language, command, home = program
    seed = random.SystemRandom().randrange(1_000_000)
    with (
        broker_in(request, directory / "broker", durability, settings or {}) as broker,
        ForeignWorkload(broker, command, directory / "client", f"{language}-{seed}", seed, home) as running,
    ):
        yield running
        print(language, running.report, *running.restarts[:5], sep="\n  ")
        running.verify()
        log = directory / "broker" / "broker.log"
        assert not log.exists() or "Traceback" not in log.read_text(), f"{log} has a traceback"


@pytest.mark.parametrize("durability", ["flush", "os"])
def test_killed_broker(request: pytest.FixtureRequest, program: Program, tmp_path: Path, durability: str) -> None:
    if program[0] == "kafka-python":
        stuck = "on a busy machine kafka-python 3.0 may stop sending after a reconnect, beside Apache Kafka 4.1, too"
        request.applymarker(pytest.mark.xfail(reason=stuck, strict=False))
    with workload(request, program, tmp_path, durability) as running:
        running.run(KILLS)


def test_killed_client(request: pytest.FixtureRequest, program: Program, tmp_path: Path) -> None:
    """A new process with the same transactional ids fences the dead one's and ends what it left open."""
    with workload(request, program, tmp_path, "flush") as running:
        running.run(KILLS, of_client=True)


@pytest.mark.parametrize("program", ["java"], indirect=True)
def test_killed_broker_and_members(request: pytest.FixtureRequest, program: Program, tmp_path: Path) -> None:
    """Two members of a group copy; the broker and one of them are killed in turn, on small segments."""
    with workload(request, program, tmp_path, "flush", SMALL_SEGMENTS) as running:
        running.run_with_member(2 * KILLS)


@pytest.mark.oncelog_only(reason="Apache Kafka takes seconds to start: there is no point to hit")
@pytest.mark.parametrize("program", ["java", "franz-go"], indirect=True)
def test_killed_while_it_recovers(request: pytest.FixtureRequest, program: Program, tmp_path: Path) -> None:
    with workload(request, program, tmp_path, "os", SMALL_SEGMENTS) as running:
        running.run_with_broken_starts(KILLS)
