"""Run the programs of examples/ as users do: as processes, against a broker, ended by real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, Message, Producer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WAIT_S = 60.0


class Program:
    """A process `python <arguments>`, which finds scripts in examples/. Its output includes stderr."""

    def __init__(self, bootstrap: str, directory: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=directory,
            env=os.environ | {"ONCELOG_BOOTSTRAP": bootstrap, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.bootstrap = bootstrap
        self.output: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        print("\n".join(self.output))  # for the report of a test that fails

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def line(self) -> str:
        """Wait for the next line of output, and return it. Raises AssertionError if the program has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the program has ended:\n" + "\n".join(self.output)
        self.output.append(line.rstrip("\n"))
        return self.output[-1]

    def kill(self) -> None:
        """Kill the program, as a crash would."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> int:
        """Send SIGTERM, wait until the program has ended, and return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait until the program has ended by itself, and return its exit code. `output` is then complete."""
        assert self._process.stdout is not None
        self.output += self._process.stdout.read().splitlines()
        return self._process.wait(WAIT_S)


def run(bootstrap: str, directory: Path, *arguments: str, code: int = 0) -> list[str]:
    """Run a program to its end, check its exit code, and return its output."""
    with Program(bootstrap, directory, *arguments) as program:
        assert program.wait() == code, "\n".join(program.output)
        return program.output


def fill(bootstrap: str, topic: str, values: Iterable[object]) -> None:
    """Write values to a topic, as JSON unless they are strings."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value if isinstance(value, str) else json.dumps(value), key=str(number))
    assert producer.flush(WAIT_S) == 0


def await_records(program: Program, topic: str, count: int) -> list[Message]:
    """Wait until a topic has `count` committed records, and return them. AssertionError if the program ends first."""
    consumer = Consumer(
        {
            "bootstrap.servers": program.bootstrap,
            "group.id": f"await-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "topic.metadata.refresh.interval.ms": 100,
        }
    )
    try:
        consumer.subscribe([topic])
        records: list[Message] = []
        while len(records) < count:
            assert program.running, f"the program has ended with {program.wait()}:\n" + "\n".join(program.output)
            message = consumer.poll(1.0)  # the test's own timeout bounds the wait
            if message is not None and message.error() is None:
                records.append(message)
        return records
    finally:
        consumer.close()


def notebook_source(path: Path) -> str:
    """Return the code of a notebook as one program."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code") + "\n"
