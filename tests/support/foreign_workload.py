"""Run a program in another language while it or the broker is killed, and compare its reports with the log.

The program (tests/interop/clients/<language>) is called with `bootstrap name partitions incarnation directory`. It runs
an idempotent producer on topic `<name>-plain` (value `incarnation-partition-n`), two transactional producers on
`<name>-txn` (ids `<name>-w0`, `-w1`, value `id/incarnation.number/index`) and a copy of `-plain` to the same partitions
of `<name>-copy` (group and transactional id `<name>-copy`). It ends its writers when `directory/writers.stop` exists,
and itself when `all.stop` exists. It reports each event as a line on stdout:

    A partition offset value   acknowledged (offset -1: unknown to the client)
    N value error              refused permanently, or outcome unknown
    T label count              a transaction begins (label is `id/incarnation.number`)
    K label                    its commit is requested from here on
    C | X | U label            committed | aborted | outcome unknown to the client
    B who error                a transaction was aborted after an error, the client continues
    R who error                a client was replaced by a new one
    F who error                an error that the client's rules do not cover
    V partition offset value   read as committed while it was written, from the beginning (Java only)
    D, E                       writers have ended, everything has ended

With the additional argument `member`, it is only another member of the copying group, with the transactional id
`<name>-copy<member>`.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .kill_workload import read_all

PARTITIONS = 3
FIRST_S = 40.0
SETTLE_S = 90.0
COPIED_S = 45.0
STUCK_S = 20.0
"""COPIED_S and STUCK_S are shorter than the programs' transaction timeout (60 s).

A transaction that is still open after one of these times was left behind.
"""


class KillableBroker(Protocol):
    """The broker to kill: `BrokerProcess` or `ApacheKafka` (which has no `spawn`)."""

    @property
    def address(self) -> str: ...
    def kill9(self) -> None: ...
    def spawn(self) -> None: ...
    def start(self) -> Any: ...


class Reports:
    """The lines that all incarnations of the program have printed so far."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def lines(self, incarnation: int | None = None) -> list[list[str]]:
        found: list[list[str]] = []
        for path in sorted(self.directory.glob("reports.*" if incarnation is None else f"reports.{incarnation}")):
            text = path.read_text(errors="replace")
            # A killed program may leave half a line.
            found += [line.split(" ") for line in text[: text.rfind("\n") + 1].splitlines() if line]
        return found

    def count(self, letter: str, incarnation: int | None = None) -> int:
        return sum(line[0] == letter for line in self.lines(incarnation))

    def errors(self, letter: str) -> list[str]:
        return [" ".join(line[1:])[:300] for line in self.lines() if line[0] == letter]


def end(process: subprocess.Popen[bytes] | None) -> None:
    """Kill the process, as a crash would."""
    if process is not None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait(30)


class ForeignWorkload:
    """The program, and the kills. Start, run, settle and verify. `report` says in one line what happened."""

    def __init__(
        self, broker: KillableBroker, command: Sequence[str], directory: Path, name: str, seed: int, cwd: Path
    ) -> None:
        self.broker, self.command, self.directory, self.name, self.cwd = broker, command, directory, name, cwd
        self.random, self.seed = random.Random(seed), seed
        self.reports = Reports(directory)
        self.incarnation = -1
        self.process: subprocess.Popen[bytes] | None = None
        self.member: subprocess.Popen[bytes] | None = None
        self.broker_kills = self.client_kills = 0
        directory.mkdir(parents=True, exist_ok=True)
        self.plain, self.transactional, self.copy = f"{name}-plain", f"{name}-txn", f"{name}-copy"
        admin = AdminClient({"bootstrap.servers": broker.address})
        topics = [NewTopic(topic, PARTITIONS, 1) for topic in (self.plain, self.transactional, self.copy)]
        for future in admin.create_topics(topics).values():
            future.result(SETTLE_S)

    def __enter__(self) -> ForeignWorkload:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_client()
        self.kill_member()

    def start_client(self) -> None:
        self.incarnation += 1
        arguments = [self.broker.address, self.name, str(PARTITIONS), str(self.incarnation), str(self.directory)]
        with (
            (self.directory / f"reports.{self.incarnation}").open("wb") as out,
            (self.directory / f"stderr.{self.incarnation}").open("wb") as errors,
        ):
            self.process = subprocess.Popen([*self.command, *arguments], stdout=out, stderr=errors, cwd=self.cwd)

    def start_member(self) -> None:
        """Start another member of the copying group, as a process."""
        arguments = [self.broker.address, self.name, str(PARTITIONS), "0", str(self.directory), "-second"]
        with (
            (self.directory / "reports.member").open("ab") as out,
            (self.directory / "stderr.member").open("ab") as errors,
        ):
            self.member = subprocess.Popen([*self.command, *arguments], stdout=out, stderr=errors, cwd=self.cwd)

    def kill_client(self) -> None:
        end(self.process)
        self.process = None

    def kill_member(self) -> None:
        end(self.member)
        self.member = None

    def run(self, kills: int, *, of_client: bool = False, at_least_s: float = 0.3, at_most_s: float = 2.0) -> None:
        self.start_client()
        self.under_way()
        for _ in range(kills):
            time.sleep(self.random.uniform(at_least_s, at_most_s))
            if of_client:
                self.kill_client()
                self.client_kills += 1
                self.start_client()
                # This happens well before the transaction timeout, because the new incarnation ends the transactions
                # that the old one left open.
                self.under_way()
            else:
                self.broker.kill9()
                self.broker_kills += 1
                self.broker.start()
        time.sleep(1.0)
        self.settle()

    def run_with_broken_starts(self, kills: int) -> None:
        """Kill the broker, then while it starts again, then just after it has started."""
        self.start_client()
        self.under_way()
        for _ in range(kills):
            time.sleep(self.random.uniform(0.3, 1.0))
            self.broker.kill9()
            self.broker.spawn()
            time.sleep(self.random.uniform(0.2, 1.0))
            self.broker.kill9()
            self.broker.start()
            time.sleep(self.random.uniform(0.0, 0.2))
            self.broker.kill9()
            self.broker.start()
            self.broker_kills += 3
        time.sleep(1.0)
        self.settle()

    def run_with_member(self, kills: int, at_least_s: float = 0.0, at_most_s: float = 2.0) -> None:
        """Kill the broker and one of two members of the copying group in turn."""
        self.start_client()
        self.start_member()
        self.under_way()
        for number in range(kills):
            time.sleep(self.random.uniform(at_least_s, at_most_s))
            if number % 2:
                self.kill_member()
                self.client_kills += 1
                self.start_member()
            else:
                self.broker.kill9()
                self.broker_kills += 1
                self.broker.start()
        time.sleep(1.0)
        self.settle()
        assert self.member is not None
        assert self.member.wait(SETTLE_S) == 0, (self.directory / "stderr.member").read_text()[-1500:]
        self.member = None

    def under_way(self) -> None:
        self.wait_until(
            lambda: self.reports.count("C", self.incarnation) > 10 and self.reports.count("A", self.incarnation) > 10,
            "the first transactions",
            FIRST_S,
        )

    def settle(self) -> None:
        (self.directory / "writers.stop").touch()
        self.wait_until(lambda: self.reports.count("D", self.incarnation) == 1, "the writers to end", SETTLE_S)
        self.wait_until(self.copied, "the copy to catch up", COPIED_S, pause_s=1.0)
        (self.directory / "all.stop").touch()
        assert self.process is not None
        assert self.process.wait(SETTLE_S) == 0, self.words()
        self.process = None

    def wait_until(self, holds: Callable[[], bool], what: str, within_s: float, pause_s: float = 0.2) -> None:
        deadline = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < deadline, f"waited {within_s:.0f} s for {what}: {self.report}\n{self.words()}"
            ended = self.process is not None and self.process.poll()
            assert ended in (None, False, 0), f"the program ended with {ended}: {self.words()}"
            time.sleep(pause_s)

    def words(self) -> str:
        """Return the errors that the program has reported."""
        said = (self.directory / f"stderr.{self.incarnation}").read_text(errors="replace")[-1500:]
        last = [" ".join(line)[:300] for line in self.reports.lines() if line[0] in "FRBN"][-12:]
        return "\n".join([*last, said])

    def copied(self) -> bool:
        written = read_all(self.broker.address, self.plain, PARTITIONS, "read_committed")
        copied = read_all(self.broker.address, self.copy, PARTITIONS, "read_committed")
        return sum(map(len, copied.values())) >= sum(map(len, written.values()))

    def verify(self) -> None:
        assert not self.reports.errors("F"), self.words()
        plain = read_all(self.broker.address, self.plain, PARTITIONS, "read_committed")
        self.verify_plain(plain)
        self.verify_transactions()
        copied = read_all(self.broker.address, self.copy, PARTITIONS, "read_committed")
        for partition, records in plain.items():
            assert [value for _, value in copied[partition]] == [value for _, value in records], f"copy of {partition}"
        self.process = None
        self.wait_until(self.nothing_open, "the last stable offsets to reach the ends", STUCK_S)

    def verify_plain(self, plain: dict[int, list[tuple[int, bytes]]]) -> None:
        at = {(partition, offset): value.decode() for partition, some in plain.items() for offset, value in some}
        values = Counter(at.values())
        assert not [value for value, times in values.items() if times > 1][:5], "doubled"
        for partition, records in plain.items():
            last: dict[str, int] = {}
            for offset, value in records:
                incarnation, _, number = value.decode().split("-")
                assert int(number) > last.get(incarnation, -1), f"out of order at {partition}@{offset}: {value!r}"
                last[incarnation] = int(number)
        for line in self.reports.lines():
            if line[0] == "A":
                partition, offset, text = int(line[1]), int(line[2]), line[3]
                assert text in values, f"acknowledged but lost: {line}"
                assert offset < 0 or at.get((partition, offset)) == text, f"not at the acknowledged offset: {line}"

    def verify_transactions(self) -> None:
        stored = read_all(self.broker.address, self.transactional, PARTITIONS, "read_committed")
        seen = Counter(value.decode() for records in stored.values() for _, value in records)
        assert not [value for value, times in seen.items() if times > 1][:5], "doubled records"
        per_transaction = Counter(value.rsplit("/", 1)[0] for value in seen)
        begun: dict[str, int] = {}
        outcome: dict[str, str] = {}
        for line in self.reports.lines():
            if line[0] == "T":
                begun[line[1]] = int(line[2])
            elif line[0] in "KCXU":
                # An unknown outcome before the commit was requested can only be an abort.
                outcome[line[1]] = line[0] if line[0] != "U" else outcome.get(line[1], "-")
        assert set(per_transaction) <= set(begun)
        self.verify_reader(stored)
        for label, count in begun.items():
            there, reported = per_transaction[label], outcome.get(label, "-")
            expected = {"C": {count}, "X": {0}, "K": {0, count}, "-": {0}}[reported]
            assert there in expected, f"{label} ({reported}): {there} of {count} records"

    def verify_reader(self, stored: dict[int, list[tuple[int, bytes]]]) -> None:
        """Check that a reader during the whole run received the same records as a reader afterwards."""
        read: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(PARTITIONS)}
        for line in self.reports.lines(self.incarnation):
            if line[0] == "V":
                read[int(line[1])].append((int(line[2]), line[3].encode()))
        if any(read.values()):
            for partition, records in stored.items():
                assert read[partition] == records, f"partition {partition} was read otherwise while it was written"

    def nothing_open(self) -> bool:
        """Return whether no last stable offset is stuck: both isolation levels have the same end offsets."""
        ends = []
        for isolation in ("read_committed", "read_uncommitted"):
            consumer = Consumer(
                {"bootstrap.servers": self.broker.address, "group.id": "ends", "isolation.level": isolation}
            )
            topics = [TopicPartition(topic, p) for topic in (self.transactional, self.copy) for p in range(PARTITIONS)]
            ends.append([consumer.get_watermark_offsets(topic, SETTLE_S)[1] for topic in topics])
            consumer.close()
        return ends[0] == ends[1]

    @property
    def restarts(self) -> list[str]:
        return self.reports.errors("R")

    @property
    def report(self) -> str:
        count = Counter(line[0] for line in self.reports.lines())
        return (
            f"seed {self.seed}: {self.broker_kills} kills of the broker, {self.client_kills} of the client; "
            f"{count['A']} acknowledged, {count['N']} not; {count['C']} committed, {count['X']} aborted, "
            f"{count['U']} unknown, {count['B']} continued after an error, {count['R']} clients replaced"
        )
