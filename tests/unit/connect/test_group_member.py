"""A worker whose group's coordinator cannot be reached gives up its work, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from oncelog.client.config import ConsumerConfig
from oncelog.client.consumer.membership import Generation, GroupMembership, Joined, MemberState
from oncelog.client.errors import NetworkError
from oncelog.connect.group.protocol import Assignment, ConnectProtocol, encode_assignment
from oncelog.connect.herder.group_member import WorkerGroupMember
from oncelog.connect.settings.distributed import DistributedConfig
from oncelog.connect.stores.cluster_config import ClusterConfigState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.heartbeat import HeartbeatResponse
from support.virtual_time import VirtualTimeLoop

HEARTBEAT_S, SESSION_S = 3.0, 10.0
WORKER = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "key.converter": "StringConverter",
    "value.converter": "StringConverter",
    **{f"{kind}.storage.topic": kind for kind in ("config", "offset", "status")},
    "heartbeat.interval.ms": str(int(HEARTBEAT_S * 1000)),
    "session.timeout.ms": str(int(SESSION_S * 1000)),
}
DOWN = NetworkError(ErrorCode.NETWORK_EXCEPTION, "connection refused")


class Coordinator:
    """The cluster as heartbeats see it: it answers, or refuses connections."""

    def __init__(self) -> None:
        self.reachable = asyncio.Event()
        self.reachable.set()
        self.known = True

    async def coordinator(self, kind: object, name: str, timeout_s: float) -> int:
        if not self.known:
            try:
                async with asyncio.timeout(timeout_s):
                    await self.reachable.wait()
            except TimeoutError:
                raise DOWN from None
            self.known = True
        return 1

    def forget_coordinator(self, kind: object, name: str) -> None:
        self.known = False

    async def call(self, node_id: int, request: object, channel: str, timeout_s: float) -> HeartbeatResponse:
        if not self.reachable.is_set():
            raise DOWN
        return HeartbeatResponse(error_code=0)

    def retry_backoff(self, attempt: int) -> float:
        return 0.1


class Configs:
    """A config topic without connectors."""

    def snapshot(self) -> ClusterConfigState:
        return ClusterConfigState()

    async def refresh(self, timeout_s: float) -> None:
        pass


class Member(WorkerGroupMember):
    """A worker that has joined a group, whose heartbeats go to `cluster`."""

    def __init__(self, cluster: Coordinator) -> None:
        super().__init__(DistributedConfig(WORKER), "http://w/", Configs())
        config = ConsumerConfig.of({
            "bootstrap.servers": "127.0.0.1:1", "group.id": "g",
            "heartbeat.interval.ms": int(HEARTBEAT_S * 1000), "session.timeout.ms": int(SESSION_S * 1000),
        })  # fmt: skip
        self._membership = GroupMembership(cluster, config, self._due.set)  # type: ignore[arg-type]
        self._membership.polled(still=True)
        self.joined = 0
        self._membership.join = self._join  # type: ignore[method-assign]

    async def _join(self, protocols: object, assign: object) -> Joined:
        self.joined += 1
        membership = self._membership
        membership.rejoin_reason = None
        membership.state = MemberState.STABLE
        membership.generation = Generation(self.joined, "w1", ConnectProtocol.SESSIONED.value)
        membership._start_heartbeats()
        assignment = Assignment("w1", "http://w/", 0)
        return Joined(membership.generation, True, encode_assignment(assignment, ConnectProtocol.SESSIONED))

    async def end(self) -> None:
        await self._membership.close()


def simulate(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(scenario)


def test_a_worker_gives_up_its_work_one_heartbeat_interval_after_the_coordinator_was_lost() -> None:
    async def scenario() -> None:
        cluster = Coordinator()
        member, loop = Member(cluster), asyncio.get_running_loop()
        await member.join()
        waiting = asyncio.create_task(member.wait())
        await asyncio.sleep(100)
        assert not waiting.done()
        cluster.reachable.clear()
        lost = loop.time()
        async with asyncio.timeout(1000):
            await waiting
        assert HEARTBEAT_S <= loop.time() - lost <= 2 * HEARTBEAT_S
        assert member.stops_before_joining
        cluster.reachable.set()
        await member.join()
        assert not member.stops_before_joining
        await member.end()

    simulate(scenario())


def test_a_coordinator_that_is_back_in_time_changes_nothing() -> None:
    async def scenario() -> None:
        cluster = Coordinator()
        member = Member(cluster)
        await member.join()
        waiting = asyncio.create_task(member.wait())
        await asyncio.sleep(0.9 * HEARTBEAT_S)
        cluster.reachable.clear()
        await asyncio.sleep(0.9 * HEARTBEAT_S)
        assert not cluster.known
        cluster.reachable.set()
        await asyncio.sleep(1000)
        assert not waiting.done()
        assert not member.stops_before_joining
        waiting.cancel()
        await member.end()

    simulate(scenario())
