"""Send the requests of group members, in any version of the protocol."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from oncelog.protocol.codec import encode_versioned
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from oncelog.protocol.messages.heartbeat import HeartbeatRequest
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.transaction_wire import TransactionWire
from support.wire import Wire, eventually

Partition = tuple[str, int]


def served(wire: Wire, group: str) -> str:
    """Return the group as soon as its coordinator answers. Apache Kafka needs some time to load its log."""
    wire.find_coordinator(group, 0)
    nobody = HeartbeatRequest(group, 0, "nobody")
    eventually(lambda: wire.call(nobody, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID)
    return group


def subscription(*topics: str) -> bytes:
    """Return a consumer's metadata, as current Java clients send it."""
    return encode_versioned(ConsumerProtocolSubscription(list(topics)), 1)


@dataclass
class Member:
    """One member on a separate connection. `join` stores the member id and generation of the response."""

    wire: Wire
    group: str
    topics: tuple[str, ...] = ("t",)
    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    protocol: str | None = None
    session_ms: int = 30_000
    protocol_type: str = "consumer"
    strategies: tuple[str, ...] = ("range",)
    told: JoinGroupResponse | None = field(default=None, repr=False)

    def send_join(self, version: int = 9) -> None:
        offered = [JoinGroupRequestProtocol(name, subscription(*self.topics)) for name in self.strategies]
        request = JoinGroupRequest(
            self.group, self.session_ms, 60_000, self.member_id, None, self.protocol_type, offered, "a test joins"
        )
        if version >= 5:
            request.group_instance_id = self.instance
        self.wire.send(request, version)

    def joined(self) -> JoinGroupResponse:
        """Return the response to `send_join`. On success, store its member id and generation."""
        response: JoinGroupResponse = self.wire.receive()
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif response.error_code == 0:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.protocol = response.protocol_name
        self.told = response
        return response

    def join(self, version: int = 9) -> JoinGroupResponse:
        """Join the group, with a second request if the broker requires the member id."""
        self.send_join(version)
        response = self.joined()
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.send_join(version)
            response = self.joined()
        return response

    @property
    def leads(self) -> bool:
        return self.told is not None and self.told.leader == self.member_id

    def send_sync(self, assignments: dict[str, bytes] | None = None, version: int = 5) -> None:
        request = SyncGroupRequest(
            self.group,
            self.generation,
            self.member_id,
            self.instance if version >= 3 else None,
            self.protocol_type,
            self.protocol,
            [SyncGroupRequestAssignment(*item) for item in (assignments or {}).items()],
        )
        self.wire.send(request, version)

    def sync(self, assignments: dict[str, bytes] | None = None, version: int = 5) -> SyncGroupResponse:
        self.send_sync(assignments, version)
        response: SyncGroupResponse = self.wire.receive()
        return response

    def heartbeat(self, version: int = 4) -> ErrorCode:
        instance = self.instance if version >= 3 else None
        request = HeartbeatRequest(self.group, self.generation, self.member_id, instance)
        return ErrorCode(self.wire.call(request, version).error_code)

    def leave(self, version: int = 5) -> ErrorCode:
        if version < 3:
            return ErrorCode(self.wire.call(LeaveGroupRequest(self.group, self.member_id), version).error_code)
        request = LeaveGroupRequest(self.group, members=[MemberIdentity(self.member_id, self.instance)])
        response = self.wire.call(request, version)
        assert response.error_code == 0
        return ErrorCode(response.members[0].error_code)

    def commit(self, partition: Partition, offset: int, version: int = 9) -> ErrorCode:
        return commit(
            self.wire,
            self.group,
            {partition: offset},
            version,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            **({"group_instance_id": self.instance} if version >= 7 else {}),
        )[partition]

    def wait_for(self, expected: ErrorCode, timeout_s: float = 15) -> None:
        """Send heartbeats until the response has this code."""
        deadline = time.monotonic() + timeout_s
        while (code := self.heartbeat()) is not expected:
            assert time.monotonic() < deadline, code
            time.sleep(0.02)


def commit(
    wire: Wire, group: str, offsets: dict[Partition, int], version: int = 9, metadata: str | None = "", **fields: Any
) -> dict[Partition, ErrorCode]:
    """Send OffsetCommit, as a consumer outside of the group unless `fields` say otherwise."""
    topics = [
        OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(index, offset, -1, metadata)])
        for (topic, index), offset in offsets.items()
    ]
    response = wire.call(OffsetCommitRequest(group, topics=topics, **fields), version)
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }


@dataclass
class Fetched:
    """The result of OffsetFetch for one partition."""

    offset: int
    metadata: str | None
    error: ErrorCode


def fetch(
    wire: Wire, group: str, partitions: list[Partition] | None, version: int = 9, *, stable: bool = False
) -> dict[Partition, Fetched]:
    """Send OffsetFetch for one group, in the form of this version."""
    if version < 8:
        old = None if partitions is None else [OffsetFetchRequestTopic(name, [index]) for name, index in partitions]
        response = wire.call(OffsetFetchRequest(group, old, require_stable=stable), version)
        assert response.error_code == 0, response
        topics: Any = response.topics
    else:
        new = (
            None
            if partitions is None
            else [OffsetFetchRequestTopics(name, partition_indexes=[index]) for name, index in partitions]
        )
        asked = OffsetFetchRequestGroup(group, topics=new)
        (answer,) = wire.call(OffsetFetchRequest(groups=[asked], require_stable=stable), version).groups
        assert (answer.group_id, answer.error_code) == (group, 0)
        topics = answer.topics
    return {
        (topic.name, part.partition_index): Fetched(part.committed_offset, part.metadata, ErrorCode(part.error_code))
        for topic in topics
        for part in topic.partitions
    }


def txn_commit(
    txn: TransactionWire, group: str, offsets: dict[Partition, int], version: int = 3, **fields: Any
) -> dict[Partition, ErrorCode]:
    """Send TxnOffsetCommit, once."""
    topics = [
        TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(index, offset, -1, "in a transaction")])
        for (topic, index), offset in offsets.items()
    ]
    request = TxnOffsetCommitRequest(txn.tid, group, txn.producer_id, txn.epoch, topics=topics, **fields)
    response = txn.wire.call(request, version)
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }
