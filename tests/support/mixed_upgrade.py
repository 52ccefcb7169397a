"""Run an application in the middle of its upgrade: one group with both kinds of producers, whose processes are killed.

Half of the members are `partition_producers` (stock clients, one producer per partition), the others are
`group_aware_member` (the bundled Processor). They copy `source` to `sink`. Meanwhile, members of both kinds and the
broker are killed with SIGKILL and started again, or members are paused for so long that they continue as zombies.
`check` compares the copy with what was written: nothing is repeated or lost, and everything is in order.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from oncelog import Admin, Consumer, KafkaError, NewTopic, Producer
from oncelog.demo.processes import ChildProcess

TESTS = Path(__file__).resolve().parents[1]
PARTITIONS = 6
CALL_S = 60.0
SESSION_TIMEOUT_MS = 6000


class KillableBroker(Protocol):
    """The broker to kill: `BrokerProcess` or `ApacheKafka`."""

    @property
    def address(self) -> str: ...
    def kill9(self) -> None: ...
    def start(self) -> object: ...


class MixedUpgrade:
    """The application: `start`, `feed`, `kill…`, `until_copied`, `close`, `check`."""

    def __init__(
        self,
        broker: KillableBroker,
        directory: Path,
        *,
        total: int,
        seed: int,
        members: int = 4,
        strategy: str = "range",
    ) -> None:
        self.broker = broker
        self.total = total
        self.random = random.Random(seed)
        self.source, self.sink = f"source-{seed}", f"sink-{seed}"
        self.group = f"application-{seed}"
        self.kills: list[str] = []
        self.written_by: Counter[str] = Counter()
        """The number of committed records that each member wrote, as counted by `check`."""
        self.members: dict[str, ChildProcess] = {}
        for number in range(members):
            stock = number % 2 == 0
            name = f"{'stock' if stock else 'aware'}-{number}"
            arguments = {
                "bootstrap": broker.address,
                "group": self.group,
                "application": self.group,
                "source": self.source,
                "sink": self.sink,
                "strategy": strategy,
                "name": name,
                "session-timeout-ms": str(SESSION_TIMEOUT_MS),
            }
            self.members[name] = ChildProcess(
                "support.partition_producers" if stock else "support.group_aware_member",
                [f"--{key}={value}" for key, value in arguments.items()],
                directory / f"{name}.log",
                {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
            )

    async def start(self) -> None:
        async with Admin(bootstrap_servers=self.broker.address) as admin:
            await admin.create_topics([NewTopic(self.source, PARTITIONS), NewTopic(self.sink, PARTITIONS)])
        for member in self.members.values():
            member.spawn()

    def close(self) -> None:
        for member in self.members.values():
            member.close()

    async def feed(self, numbers: range) -> None:
        """Write the numbers in order, each to its partition."""
        async with Producer(bootstrap_servers=self.broker.address) as producer:
            for number in numbers:
                await producer.enqueue(self.source, b"%d" % number, partition=number % PARTITIONS)
            await producer.flush()

    async def kill_member(self, kind: str) -> None:
        name = self.random.choice([name for name in self.members if name.startswith(kind)])
        self.kills.append(name)
        await asyncio.to_thread(self.members[name].kill9)
        await asyncio.sleep(self.random.uniform(0.0, 1.0))
        self.members[name].spawn()

    async def pause_member(self, kind: str) -> None:
        """Pause a member for longer than its session timeout. The group continues without it, then it wakes up."""
        name = self.random.choice([name for name in self.members if name.startswith(kind)])
        self.kills.append(f"pause {name}")
        os.kill(self.members[name].pid, signal.SIGSTOP)
        await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 + self.random.uniform(0.5, 2.0))
        os.kill(self.members[name].pid, signal.SIGCONT)

    async def disturb(self, how: str) -> None:
        """Kill or pause one process, as `how` says: broker, stock, aware, pause stock, pause aware."""
        if how == "broker":
            await self.kill_broker()
        elif how.startswith("pause "):
            await self.pause_member(how.removeprefix("pause "))
        else:
            await self.kill_member(how)

    async def kill_broker(self) -> None:
        self.kills.append("broker")
        await asyncio.to_thread(self.broker.kill9)
        await asyncio.to_thread(self.broker.start)

    async def copied(self) -> int:
        """Return how many inputs the group has committed."""
        try:
            async with Admin(bootstrap_servers=self.broker.address, default_api_timeout_ms=10_000) as admin:
                offsets = await admin.group_offsets(self.group)
        except KafkaError:
            return 0
        return sum(position.offset for position in offsets.values())

    async def until_copied(self, count: int, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while (done := await self.copied()) < count:
            self.check_alive()
            assert time.monotonic() < deadline, f"{done} of {count} copied after {limit_s} s; kills: {self.kills}"
            await asyncio.sleep(0.2)

    def check_alive(self) -> None:
        for name, member in self.members.items():
            assert member.running, f"{name} ended by itself: {member.last_words()}"

    async def check(self) -> None:
        """Check that a read_committed reader sees every number once, in order, in its partition.

        Also check that no transaction is open.
        """
        found = await self._read()
        for index, numbers in enumerate(found):
            expected = list(range(index, self.total, PARTITIONS))
            doubled = len(numbers) - len(set(numbers))
            lost = len(set(expected) - set(numbers))
            assert (doubled, lost) == (0, 0), f"partition {index}: {doubled} repeated, {lost} lost; kills: {self.kills}"
            assert numbers == expected, f"partition {index} is out of order; kills: {self.kills}"
        for kind in ("stock", "aware"):
            share = sum(count for name, count in self.written_by.items() if name.startswith(kind)) / self.total
            assert share > 0.05, f"{kind} members did {share:.0%} of the work: {dict(self.written_by)}"

    async def _read(self) -> list[list[int]]:
        partitions = [(self.sink, index) for index in range(PARTITIONS)]
        address = self.broker.address
        async with (
            Consumer(
                bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest"
            ) as stable,
            Consumer(bootstrap_servers=address, isolation_level="read_uncommitted") as written,
            asyncio.timeout(CALL_S * 2),
        ):
            while await stable.end_offsets(partitions) != await written.end_offsets(partitions):
                await asyncio.sleep(0.05)
            stable.assign(partitions)
            found: list[list[int]] = [[] for _ in partitions]
            while sum([await stable.lag(partition) for partition in partitions]):
                for record in await stable.poll(1000, 10_000):
                    assert record.value is not None
                    found[record.partition].append(int(record.value))
                    self.written_by[(record.headers[0][1] or b"").decode()] += 1
            return found


async def run(upgrade: MixedUpgrade, kills: Sequence[str], limit_s: float) -> None:
    """Copy all numbers, with the kills spread over the work. Each kill waits until work is under way."""
    try:
        await upgrade.start()
        step = upgrade.total // (len(kills) + 1)
        await upgrade.feed(range(step))
        for number, kill in enumerate(kills, 1):
            end = upgrade.total if number == len(kills) else step * (number + 1)
            await upgrade.until_copied(step * (number - 1) + step // 3, limit_s)
            feeding = asyncio.create_task(upgrade.feed(range(step * number, end)))
            await asyncio.sleep(upgrade.random.uniform(0.0, 0.3))
            await upgrade.disturb(kill)
            await feeding
        await upgrade.until_copied(upgrade.total, limit_s)
        upgrade.check_alive()
    finally:
        await asyncio.to_thread(upgrade.close)
    await upgrade.check()
