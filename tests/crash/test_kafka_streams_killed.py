"""A Kafka Streams application (exactly_once_v2) whose instances and broker are killed: it counts each word once."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.apache_kafka import HERE, ApacheKafka, class_path, jvm_options
from support.broker import BrokerProcess
from support.kill_workload import read_all

PROGRAM = Path(__file__).resolve().parents[1] / "interop" / "clients" / "java" / "WordCount.java"
PARTITIONS = 4
WORDS = 60
SETTLE_S = 120.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Application:
    """Instances of the application, each a process with a state directory of its own."""

    def __init__(self, bootstrap: str, directory: Path, class_path: str) -> None:
        self.bootstrap, self.directory, self.class_path = bootstrap, directory, class_path
        self.instances: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *_: object) -> None:
        for instance in self.instances:
            instance.kill()
            instance.wait(30)

    def start(self, number: int) -> None:
        command = ["java", *jvm_options("256m"), "-cp", self.class_path, "WordCount", self.bootstrap, "words"]
        with (self.directory / f"instance.{number}").open("ab") as out:
            process = subprocess.Popen([*command, str(self.directory / f"state.{number}")], stdout=out, stderr=out)
        if number == len(self.instances):
            self.instances.append(process)
        else:
            self.instances[number] = process

    def kill(self, number: int) -> None:
        self.instances[number].kill()
        self.instances[number].wait(30)

    def stop(self) -> None:
        for instance in self.instances:
            instance.terminate()
        for instance in self.instances:
            instance.wait(60)

    def wait_for(self, counted: int) -> None:
        """Until `out` has as many records, or nothing has been added for SETTLE_S."""
        before, deadline = -1, time.monotonic() + SETTLE_S
        while (now := sum(map(len, read_all(self.bootstrap, "out", PARTITIONS, "read_committed").values()))) < counted:
            if now > before:
                before, deadline = now, time.monotonic() + SETTLE_S
            assert time.monotonic() < deadline, f"{now} of {counted} words are counted\n{self.words()}"
            time.sleep(1)

    def words(self) -> str:
        return "\n".join(log.read_text(errors="replace")[-3000:] for log in sorted(self.directory.glob("instance.*")))


class Input:
    """Random words, each produced once, and how often each one was produced."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self.written: Counter[str] = Counter()
        self.refused: list[Any] = []

    def write(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(20):
                word = f"word{self.random.randrange(WORDS)}"
                self.producer.produce("in", value=word.encode(), on_delivery=self._delivered)
                self.written[word] += 1
            self.producer.poll(0.05)

    def flush(self) -> None:
        assert not self.producer.flush(120)
        assert not self.refused, self.refused[:3]

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self.refused.append(error)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    for program in ("java", "javac", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    home = tmp_path_factory.mktemp("streams")
    path = class_path(pom=HERE / "streams.xml")
    done = subprocess.run(
        ["javac", "-cp", path, "-d", str(home), str(PROGRAM)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return f"{home}:{path}"


def broker_in(request: pytest.FixtureRequest, directory: Path, durability: str) -> AbstractContextManager[Any]:
    if request.config.getoption("--kafka"):
        return ApacheKafka(directory)
    return BrokerProcess(directory, "--durability", durability)


@pytest.mark.parametrize("durability", ["flush", "os"])
def test_words_are_counted_once(request: pytest.FixtureRequest, classes: str, tmp_path: Path, durability: str) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    with broker_in(request, tmp_path / "broker", durability) as broker:
        topics = [NewTopic("in", PARTITIONS, 1), NewTopic("out", PARTITIONS, 1)]
        admin = AdminClient({"bootstrap.servers": broker.address})
        for future in admin.create_topics(topics).values():
            future.result(60)
        words = Input(broker.address, seed)
        with Application(broker.address, tmp_path, classes) as application:
            for number in range(2):
                application.start(number)
            words.write(8)
            for number in range(8):
                words.write(words.random.uniform(0.5, 6))
                if words.random.randrange(3):
                    broker.kill9()
                    broker.start()
                else:
                    application.kill(number % 2)
                    application.start(number % 2)
            words.write(2)
            words.flush()
            application.wait_for(words.written.total())
            application.stop()
        print(f"seed {seed}: {words.written.total()} words")
        counts: dict[str, list[int]] = {}
        for records in read_all(broker.address, "out", PARTITIONS, "read_committed").values():
            for _, value in records:
                word, count = value.decode().split(" ")
                counts.setdefault(word, []).append(int(count))
        for word, times in words.written.items():
            assert counts[word] == list(range(1, times + 1)), f"seed {seed}, {word}: {counts[word][:50]} of {times}"
