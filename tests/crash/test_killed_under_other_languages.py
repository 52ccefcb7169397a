"""kill -9 of the broker, and of the client, under clients of other languages: nothing lost, doubled, torn or stuck."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.broker import BrokerProcess
from support.told import ForeignWorkload

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


LANGUAGES = {
    "java": Language(java),
    "kafkajs": Language(javascript),
    "aiokafka": Language(lambda _: python("aiokafka")),
    "kafka-python": Language(lambda _: python("kafka_python")),
    "franz-go": Language(lambda home: go(home, "underkills")),
}


@pytest.fixture(scope="session", params=LANGUAGES)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str], Path]:
    """(language, command, directory to run it in), built once."""
    home = tmp_path_factory.mktemp(request.param)
    return request.param, LANGUAGES[request.param].prepare(home), home


def broker_in(request: pytest.FixtureRequest, directory: Path, durability: str) -> AbstractContextManager[Any]:
    if request.config.getoption("--kafka"):
        from support.apache_kafka import ApacheKafka

        return ApacheKafka(directory)
    return BrokerProcess(directory, "--durability", durability)


def work(
    request: pytest.FixtureRequest, program: tuple[str, list[str], Path], tmp_path: Path, durability: str, **kills: Any
) -> None:
    language, command, home = program
    seed = random.SystemRandom().randrange(1_000_000)
    with (
        broker_in(request, tmp_path / "broker", durability) as broker,
        ForeignWorkload(broker, command, tmp_path / "client", f"{language}-{seed}", seed, home) as workload,
    ):
        workload.run(KILLS, **kills)
        print(language, workload.report, *workload.restarts[:5], sep="\n  ", file=sys.stderr)
        workload.verify()


@pytest.mark.parametrize("durability", ["flush", "os"])
def test_killed_broker(
    request: pytest.FixtureRequest, program: tuple[str, list[str], Path], tmp_path: Path, durability: str
) -> None:
    work(request, program, tmp_path, durability)


def test_killed_client(request: pytest.FixtureRequest, program: tuple[str, list[str], Path], tmp_path: Path) -> None:
    """A new process with the same transactional ids fences the dead one's and ends what it left open."""
    work(request, program, tmp_path, "flush", of_client=True)
