"""Simulate a worker: a group member that consumes inputs, transforms and produces, transaction by transaction."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.heartbeat import HeartbeatRequest
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from oncelog.protocol.schema import Request

from .client import Abortable, Caller, Fenced, Process, R, Unexpected
from .kinds import KINDS
from .network import Disconnected
from .producer import INPUT, Producer

if TYPE_CHECKING:
    from .world import World

IDLE = "idle"
REBALANCE = frozenset({ErrorCode.REBALANCE_IN_PROGRESS})
LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID})


class Rejoin(Exception):
    """The group is rebalancing, or has begun another generation."""


@dataclass(frozen=True)
class WorkerPlan:
    """The habits of a worker.

    `lazy` is the number of transactions between two heartbeats. `stalls` says how often the worker halts in the middle
    of a transaction, as a process without memory does. An `idle` worker is a member without partitions. `ponders` is
    the largest share of a transaction's timeout for which the worker leaves the transaction open on purpose.
    """

    kind: str
    timeout_ms: int = 2000
    session_ms: int = 1500
    lazy: int = 1
    aborts: float = 0.1
    think_s: float = 0.3
    stalls: float = 0.0
    rebalance_ms: int = 1000
    idle: bool = False
    ponders: float = 0.0


class Worker:
    """One process of a worker."""

    def __init__(self, world: World, slot: int, plan: WorkerPlan, incarnation: int) -> None:
        self.world = world
        self.slot = slot
        self.plan = plan
        self.kind = KINDS[plan.kind]
        self.group = world.group_of(slot)
        self.name = f"w{slot}.{incarnation}"
        self.rng = Random(world.rng.getrandbits(32))
        self.process = Process(world, self.name)
        self.member_id = ""
        self.instance_id = f"i{slot}" if self.kind.static else None
        self.generation = -1
        self.assigned: list[int] = []
        self.wishes = 0
        """Increases when the worker wants another assignment."""
        self._transactional_id = self.name if self.kind.fresh_ids else f"w{slot}"
        self._consumer = Caller(self.process, late=self.kind.late, extension=self.kind.extension)
        self._joined_with = 0
        self._producers: dict[str, Producer] = {}
        self._positions: dict[int, int] = {}
        self._closing: list[Caller] = [self._consumer]
        self.task: asyncio.Task[None] | None = None

    # ---- start and end

    def start(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self.run(), name=self.name)

    def kill(self) -> None:
        """End the process. Requests that it had sent may still arrive."""
        if self.task is not None:
            self.task.cancel()
        for caller in self._closing:
            caller.close(late=self.rng.random() < 0.5)

    async def maybe_stall(self) -> None:
        """Halt sometimes. This is called at several critical points of a transaction."""
        if self.plan.stalls and self.rng.random() < self.plan.stalls:
            self.world.note(f"{self.name} stalls")
            self.process.halt()
            self.world.stir()
            asyncio.get_running_loop().call_later(0.3 + self.rng.random() * 3.0, self.process.go_on)
            await self.process.awake()

    def _is_careless(self) -> bool:
        """Whether the program commits although a batch was refused, because it ignores the results of its sends.

        It must not if a lower level may have ended its session of EndTxn v3-4. All transactions of such a session have
        the same epoch, so this commit would look like a repetition of the commit before: docs/transactions.md.
        """
        may_lose_session = self.kind.session and self.kind.end < 5 and self.world.scenario.leveled
        return not may_lose_session and self.world.carelessness.random() < 0.5

    async def run(self) -> None:
        """Work until killed."""
        while True:
            try:
                await self._join()
                await self._begin()
                await self._work()
            except Rejoin:
                await self.process.sleep(0.01)
            except (Abortable, Fenced) as error:
                self.world.note(f"{self.name} starts over: {error!r}")
                self._producers.clear()
                await self.process.sleep(0.05 if isinstance(error, Abortable) else 0.3)

    async def leave(self) -> None:
        """Leave the group cleanly, then end the process."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        if self.member_id and self.instance_id is None:
            with contextlib.suppress(Disconnected):
                await self._consumer.once(
                    LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(self.member_id)]), 3
                )
        self.kill()

    # ---- the group

    async def _join(self) -> None:
        while True:
            self.assigned, self.generation = [], -1
            self._joined_with = self.wishes
            joined = await self._retried(
                JoinGroupRequest(
                    group_id=self.group,
                    session_timeout_ms=self.plan.session_ms,
                    rebalance_timeout_ms=self.plan.rebalance_ms,
                    member_id=self.member_id,
                    group_instance_id=self.instance_id,
                    protocol_type="consumer",
                    protocols=[
                        JoinGroupRequestProtocol(
                            "p", f"{IDLE if self.plan.idle else ''} {self.slot} {self.wishes}".encode()
                        )
                    ],
                ),
                5 if self.kind.static else 3,
            )
            code = ErrorCode(joined.error_code)
            if code is ErrorCode.NONE:
                self.member_id = joined.member_id
                if await self._sync(joined):
                    return
            elif code in LOST:
                self.member_id = ""
                if code is ErrorCode.FENCED_INSTANCE_ID:
                    raise Fenced(code)  # another process is this worker now
            elif code is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
            else:
                await self.process.sleep(0.05)

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        assignments = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            parts: dict[str, list[int]] = {member.member_id: [] for member in joined.members}
            members = [member for member in joined.members if not bytes(member.metadata).startswith(IDLE.encode())]
            members.sort(key=lambda member: (bytes(member.metadata), member.member_id))
            for partition in range(self.world.inputs if members else 0):
                # Partitions move to other members from generation to generation.
                owner = members[(partition + joined.generation_id) % len(members)]
                parts[owner.member_id].append(partition)
            assignments = [SyncGroupRequestAssignment(name, bytes(part)) for name, part in parts.items()]
        synced = await self._retried(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=joined.generation_id,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocol_name="p",
                assignments=assignments,
            ),
            3,
        )
        code = ErrorCode(synced.error_code)
        if code is ErrorCode.NONE:
            self.generation = joined.generation_id
            self.assigned = list(bytes(synced.assignment))
            self.world.note(f"{self.name} owns {self.assigned} in generation {self.generation}")
            return True
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            raise Fenced(code)
        else:
            await self.process.sleep(0.02)
        return False

    async def _retried(self, request: Request[R], version: int) -> R:
        while True:
            try:
                return await self._consumer.once(request, version)
            except Disconnected:
                await self.process.sleep(0.05 + self.rng.random() * 0.1)

    async def _heartbeat(self) -> None:
        """Send a heartbeat. Raises Rejoin if the group rebalances or has begun another generation."""
        if self.wishes != self._joined_with:
            raise Rejoin
        answer = await self._retried(HeartbeatRequest(self.group, self.generation, self.member_id, self.instance_id), 3)
        code = ErrorCode(answer.error_code)
        if code in LOST:
            self.member_id = ""
            if code is ErrorCode.FENCED_INSTANCE_ID:
                raise Fenced(code)
        if code in LOST | REBALANCE:
            raise Rejoin

    # ---- taking over

    async def _begin(self) -> None:
        """Fence the predecessors, then find out where they ended. The order matters."""
        for partitions in self._shares():
            transactional_id = self._id_for(partitions)
            producer = self._producers.get(transactional_id)
            if producer is None:
                producer = Producer(self, transactional_id)
                self._closing.append(producer.caller)
                await producer.init()
                self._producers[transactional_id] = producer
            elif self.kind.group_aware:
                await producer.init()
        kept = {self._id_for(partitions) for partitions in self._shares()}
        for transactional_id in self._producers.keys() - kept:
            if self.kind.per_partition:
                del self._producers[transactional_id]  # if the partition comes back, others have had the id
        await self._fetch_positions()

    def _id_for(self, partitions: list[int]) -> str:
        return f"{self.group}-app-{partitions[0]}" if self.kind.per_partition else self._transactional_id

    async def _fetch_positions(self) -> None:
        kind = self.kind
        while self.assigned:
            if kind.fetch >= 8:
                topics = [OffsetFetchRequestTopics(name=INPUT, partition_indexes=self.assigned)]
                request = OffsetFetchRequest(
                    groups=[OffsetFetchRequestGroup(self.group, topics=topics)], require_stable=kind.require_stable
                )
            else:
                request = OffsetFetchRequest(
                    self.group, [OffsetFetchRequestTopic(INPUT, self.assigned)], require_stable=kind.require_stable
                )
            answer = await self._retried(request, kind.fetch)
            found = answer.groups[0] if kind.fetch >= 8 else answer
            partitions = [partition for topic in found.topics for partition in topic.partitions]
            codes = {ErrorCode(code) for code in [found.error_code, *(p.error_code for p in partitions)]}
            if codes == {ErrorCode.NONE}:
                self._positions = {p.partition_index: max(p.committed_offset, 0) for p in partitions}
                assert sorted(self._positions) == sorted(self.assigned)
                return
            if codes - self.world.fetch_codes(kind):
                raise Unexpected(f"{self.name}: OffsetFetch v{kind.fetch} with {codes}")
            await self._heartbeat()
            await self.process.sleep(0.15)

    # ---- working

    async def _work(self) -> None:
        while True:
            for _ in range(self.plan.lazy):
                for partitions in self._shares():
                    if partitions:
                        await self._transaction(partitions)
                await self.process.sleep(0.25 if self.plan.idle else self.rng.random() * self.plan.think_s)
            await self._heartbeat()

    def _shares(self) -> list[list[int]]:
        """Return the partitions of each transaction."""
        if self.kind.per_partition:
            return [[partition] for partition in self.assigned]
        if self.kind.group_aware and self._producers:
            return [self.assigned]  # initialising without partitions releases the earlier ones
        return [self.assigned] if self.assigned else []

    async def _transaction(self, partitions: list[int]) -> None:
        transactional_id = self._id_for(partitions)
        producer = self._producers[transactional_id]
        inputs = {}
        for partition in partitions:
            start = self._positions[partition]
            inputs[partition] = start, start + self.rng.randint(1, 2)
        transaction = self.world.begin(self, producer.transactional_id, inputs)
        for partition, (start, end) in inputs.items():
            for offset in range(start, end):
                target = (partition + offset) % self.world.outputs
                transaction.outputs.setdefault(target, []).append(f"{transaction.number}:{partition}:{offset}")
        commit = self.rng.random() >= self.plan.aborts
        began = asyncio.get_running_loop().time()
        try:
            await producer.send(transaction)
            await self.maybe_stall()
            if self.plan.ponders:
                left = began + self.plan.ponders * self.plan.timeout_ms / 1000 - asyncio.get_running_loop().time()
                await self.process.sleep(self.rng.random() * max(0.0, left))
        except Abortable as error:
            careless = transaction.refused and self._is_careless()
            self.world.note(f"{self.name} {'commits' if careless else 'aborts'} {transaction.number}: {error!r}")
            await producer.end(transaction, careless, knows_what_is_written=False)
            raise Rejoin from None
        await producer.end(transaction, commit)
        self.world.told(transaction)
        if commit:
            for partition, (_, end) in inputs.items():
                self._positions[partition] = end
