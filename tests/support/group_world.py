"""A group coordinator on ports that a test drives: a log that knows what is durable, and a clock that jumps.

Run a test with `@in_virtual_time`: then `asyncio.sleep(30)` takes no time, and timers fire in order.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from oncelog.broker.config import BrokerConfig
from oncelog.broker.coordinator.group.coordinator import Commit, Committer, GroupCoordinator
from oncelog.broker.coordinator.group.member import ClientIdentity, OfferedProtocol, OfferedProtocols
from oncelog.broker.coordinator.group.membership import Join
from oncelog.broker.coordinator.state_log import StateLog
from oncelog.broker.metadata import Metadata, Topic
from oncelog.broker.scheduling.patient_timers import PatientTimers
from oncelog.broker.system.ports import SystemRandomIds
from oncelog.protocol.batch_header import assemble_batch, read_batch_header
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.join_group import JoinGroupResponse
from oncelog.protocol.messages.leave_group import MemberIdentity
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from oncelog.protocol.records import decode_batch
from support.transaction_ports import SimulatedStateLog, WrittenRecord
from support.virtual_time import LoopClock, VirtualTimeLoop

SESSION_MS = 10_000
REBALANCE_MS = 60_000


def in_virtual_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test with a clock that jumps to the next timer."""

    @functools.wraps(test)
    def run(*args: Any, **keywords: Any) -> None:
        async def body() -> None:
            await test(*args, **keywords)

        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(body())

    return run


class Silent:
    """A logger that discards all lines."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **keywords: None


class SimulatedGroupLog(SimulatedStateLog):
    """A SimulatedStateLog with transactions."""

    def append(
        self,
        partition: int,
        records: Iterable[tuple[bytes, bytes | None]],
        *,
        timestamp_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        transactional: bool = False,
        essential: bool = False,
    ) -> SimpleNamespace:
        result = super().append(partition, records, timestamp_ms=timestamp_ms)
        for _, record in self.records:
            if record.offset >= result.base_offset:
                record.producer_id = producer_id
                record.is_transactional = transactional
        return result

    def append_encoded(self, partition: int, records: Sequence[bytes], *, timestamp_ms: int, **fields: Any) -> Any:
        batch = assemble_batch(
            b"".join(records),
            base_offset=0,
            leader_epoch=-1,
            attributes=0,
            last_offset_delta=len(records) - 1,
            base_timestamp=timestamp_ms,
            max_timestamp=timestamp_ms,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=len(records),
        )
        decoded = decode_batch(batch, 0, read_batch_header(batch, 0))
        pairs = [(record.key or b"", record.value) for record in decoded]
        return self.append(partition, pairs, timestamp_ms=timestamp_ms, **fields)

    def append_marker(self, partition: int, producer_id: int, commit: bool) -> int:
        record = WrittenRecord(self.disk.end, 0, None, None, producer_id, True, commit)
        self.records.append((partition, record))
        self.disk.end += 1
        return record.offset

    def compact(self, dropped: Callable[[WrittenRecord], bool]) -> None:
        self.records = [entry for entry in self.records if not dropped(entry[1])]


class Topics:
    """The part of the metadata store that the coordinator uses."""

    def __init__(self, **partitions: int) -> None:
        self.topics = {
            name: Topic(name, bytes([number]) * 16, count) for number, (name, count) in enumerate(partitions.items(), 1)
        }

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def change(self, name: str, **changes: Any) -> None:
        self.topics[name] = replace(self.topics[name], **changes)


class GroupWorld:
    """A coordinator that can crash and start again, with short methods for the requests of its clients."""

    def __init__(self, *, flush_on_ask: bool = True, **settings: Any) -> None:
        self.log = SimulatedGroupLog(flush_on_ask=flush_on_ask)
        self.topics = Topics(orders=4, payments=2)
        self.config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
        self.group_aware = True
        self.coordinator = self._make()

    def _make(self) -> GroupCoordinator:
        return GroupCoordinator(
            config=self.config,
            state_log=cast(StateLog, self.log),
            metadata=cast(Metadata, self.topics),
            clock=LoopClock(),
            ids=SystemRandomIds(),
            timers=PatientTimers(Silent()),
            logger=Silent(),
            group_aware=self.group_aware,
        )

    async def __aenter__(self) -> GroupWorld:
        await self.coordinator.start()
        self.coordinator.begin_sessions()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.coordinator.stop()

    async def restart(self, *, lost: bool = False) -> None:
        """Create another coordinator over the same log. With `lost`, the log loses what was not durable."""
        await self.coordinator.stop()
        if lost:
            self.log.crash(0)
        self.coordinator = self._make()
        await self.coordinator.start()
        self.coordinator.begin_sessions()

    # ---- members

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        protocols: Iterable[tuple[str, bytes]] = (("range", b"r"),),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
        client_id: str = "client",
    ) -> asyncio.Future[JoinGroupResponse]:
        return self.coordinator.join(
            Join(
                group,
                member_id,
                instance,
                ClientIdentity(client_id, "/127.0.0.1"),
                session_ms,
                rebalance_ms,
                protocol_type,
                OfferedProtocols(OfferedProtocol(*protocol) for protocol in protocols),
                requires_known_member_id=version >= 4,
                supports_skipping_assignment=version >= 9,
            )
        )

    async def new_member(self, **options: Any) -> str:
        """Request a member id, as clients do since KIP-394, and return it."""
        response = await self.join(**options)
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED, ErrorCode(response.error_code)
        return response.member_id

    def sync(
        self,
        joined: JoinGroupResponse,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        **fields: Any,
    ) -> asyncio.Future[SyncGroupResponse]:
        return self.coordinator.sync(
            SyncGroupRequest(
                group_id=group,
                generation_id=fields.get("generation_id", joined.generation_id),
                member_id=fields.get("member_id", joined.member_id),
                group_instance_id=instance,
                protocol_type=fields.get("protocol_type", joined.protocol_type),
                protocol_name=fields.get("protocol_name", joined.protocol_name),
                assignments=[SyncGroupRequestAssignment(*item) for item in (assignments or {}).items()],
            )
        )

    async def stable_group(self, count: int = 2, *, group: str = "g", **options: Any) -> list[JoinGroupResponse]:
        """Return the JoinGroup responses of `count` dynamic members of a stable group.

        The first member is the leader. Each member is assigned its own member id.
        """
        members = [await self.new_member(group=group, **options) for _ in range(count)]
        joined = await asyncio.gather(*[self.join(member, group=group, **options) for member in members])
        if joined[0].generation_id == 1 and len(joined[0].members) != count:
            raise AssertionError("the members did not join in one generation")
        leader = next(response for response in joined if response.leader == response.member_id)
        assignments = {member: member.encode() for member in members}
        synced = await asyncio.gather(
            *[self.sync(response, assignments if response is leader else None, group=group) for response in joined]
        )
        assert [response.error_code for response in synced] == [0] * count
        return sorted(joined, key=lambda response: response is not leader)

    def heartbeat(
        self, joined: JoinGroupResponse, *, group: str = "g", instance: str | None = None, generation: int | None = None
    ) -> ErrorCode:
        generation_id = joined.generation_id if generation is None else generation
        try:
            return self.coordinator.heartbeat(group, joined.member_id, instance, generation_id)
        except KafkaError as error:
            return error.code

    def leave(self, *members: str, group: str = "g") -> list[int]:
        left = self.coordinator.leave(group, [MemberIdentity(member) for member in members])
        return [response.error_code for response in left]

    # ---- offsets

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        group: str = "g",
        member: JoinGroupResponse | None = None,
        producer: int | None = None,
        metadata: str | None = None,
        **options: Any,
    ) -> list[ErrorCode]:
        committer = Committer() if member is None else Committer(member.member_id, None, member.generation_id)
        commits = [Commit(partition, offset, 0, metadata) for partition, offset in offsets.items()]
        if producer is None:
            return self.coordinator.commit_offsets(group, committer, commits, **options)
        return self.coordinator.commit_txn_offsets(group, committer, producer, 0, commits)

    def end(self, producer: int, *, commit: bool, group: str = "g") -> None:
        """Write the producer's marker to the group's partition."""
        partition = self.coordinator.partition_for(group)
        offset = self.log.append_marker(partition, producer, commit)
        self.coordinator.complete_transaction(partition, producer, 0, commit, offset)

    def committed(self, *partitions: tuple[str, int], group: str = "g") -> dict[tuple[str, int], int]:
        found = self.coordinator.fetch_offsets(group, partitions or None)
        return {item.partition: item.offset.committed_offset for item in found if item.offset is not None}

    def pending(self, *partitions: tuple[str, int], group: str = "g") -> set[tuple[str, int]]:
        return {item.partition for item in self.coordinator.fetch_offsets(group, partitions) if item.is_pending}

    def state(self, group: str = "g") -> str | None:
        found = self.coordinator.group(group)
        return None if found is None else found.state.value
