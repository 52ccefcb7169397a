"""What access control may cost, and what clients cannot do to it: hidden topics, chosen names, limits, sessions."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any

import pytest
from oncelog.broker.acls.acl import Acl, AclFilter
from oncelog.broker.handlers import delete_acls
from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.access import Op, Type, limited_broker, rule
from support.raw_connection import RawConnection, batch
from support.sasl import alter_credentials, broker_with_sasl, log_in, sasl_address, upsertion

pytestmark = pytest.mark.oncelog_only(reason="starts brokers with settings of its own")

TOPICS = 3000
PAUSES = {"all topics": 15, "named topics": 60, "topics that would be created": 200}
"""How often the broker serves others at least, while it answers a request about `TOPICS` hidden topics."""


def count_pauses(broker: BrokerNode) -> list[int]:
    """Return a list that grows whenever the execution of a request lets others in between."""
    pauses: list[int] = []
    execute = broker.dispatcher.execute

    @types.coroutine
    def counted(reply: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        while True:
            try:
                waiting = reply.send(None)
            except StopIteration as end:
                return end.value
            pauses.append(1)
            yield waiting

    def counting(exchange: Any) -> Any:
        reply = execute(exchange)
        return counted(reply) if isinstance(reply, Coroutine) else reply

    broker.dispatcher.execute = counting  # type: ignore[method-assign]
    return pauses


@pytest.mark.parametrize("hidden", PAUSES)
async def test_others_come_in_between_hidden_topics(hidden: str) -> None:
    async with limited_broker(max_partitions=10_000) as world:
        names = [f"hidden-{number}" for number in range(TOPICS)]
        creates = hidden == "topics that would be created"
        if not creates:
            for name in names:
                await world.broker._node.metadata.create_topic(name, 1, {})
        await world.only(rule(Op.DESCRIBE, Type.TOPIC, "*") if creates else rule(Op.READ, Type.GROUP, "g"))
        topics = None if hidden == "all topics" else [MetadataRequestTopic(name=name) for name in names]
        pauses = count_pauses(world.broker._node)
        answer = await world.wire.call(MetadataRequest(topics, creates), 12)
        assert [topic for topic in answer.topics if not topic.error_code] == []
        assert len(pauses) >= PAUSES[hidden]


async def test_a_topic_that_a_client_names_changes_no_decision_about_all_topics() -> None:
    async with limited_broker() as world:
        await world.only(rule(Op.WRITE, Type.TOPIC, "t"))
        assert (await world.wire.call(InitProducerIdRequest(None, 0), 3)).error_code == 0
        for name in ("\0any", "hardcode", "*", ""):
            data = [TopicProduceData(name, partition_data=[PartitionProduceData(0, batch(b"x"))])]
            await world.wire.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), 9)
        assert (await world.wire.call(InitProducerIdRequest(None, 0), 3)).error_code == 0


def creation(name: str, principal: str = "User:a", host: str = "*") -> AclCreation:
    return AclCreation(2, name, 3, principal, host, 3, 3)


async def test_parallel_requests_cannot_exceed_the_limit_of_rules() -> None:
    async with limited_broker(max_acls=10) as world:  # four rules exist
        wires = [RawConnection(world.broker.address) for _ in range(4)]
        try:
            for wire in wires:
                await wire.__aenter__()
            answers = await asyncio.gather(
                *(
                    wire.call(CreateAclsRequest([creation(f"t-{number}-{index}") for index in range(5)]), 3)
                    for number, wire in enumerate(wires)
                )
            )
        finally:
            for wire in wires:
                wire.close()
        codes = [{result.error_code for result in answer.results} for answer in answers]
        assert codes.count({0}) == 1
        assert codes.count({ErrorCode.POLICY_VIOLATION}) == 3
        assert len(world.broker._node.metadata.acls) == 9


async def test_long_names_of_rules_are_refused() -> None:
    async with limited_broker() as world:
        long = "x" * 1001
        request = CreateAclsRequest(
            [creation(long), creation("t", f"User:{long}"), creation("t", host=long), creation("t")]
        )
        answer = await world.wire.call(request, 3)
        assert [result.error_code for result in answer.results] == [ErrorCode.INVALID_REQUEST] * 3 + [0]


async def test_rules_are_no_longer_compared_when_the_client_that_deletes_them_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = 0

    class Counting(AclFilter):
        def matches(self, acl: Acl) -> bool:
            nonlocal compared
            compared += 1
            return super().matches(acl)

    monkeypatch.setattr(delete_acls, "AclFilter", Counting)
    async with limited_broker() as world:
        acls = [Acl(2, 3, f"t-{number}", "User:a", "*", 3, 3) for number in range(2000)]
        await world.broker._node.metadata.create_acls(acls)
        assert world.broker._node._listeners is not None
        listener = world.broker._node._listeners.first
        async with RawConnection(world.broker.address) as wire:
            wire.send(DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, "1.2.3.4", 1, 1)] * 500), 3)
            while not compared:
                await asyncio.sleep(0)
        while listener.connection_count > 1:  # the request counts as a connection until it has ended
            await asyncio.sleep(0)
        assert compared < 500 * 2000 / 2


async def test_a_refused_change_of_credentials_names_every_user() -> None:
    async with limited_broker() as world:
        await world.only(rule(Op.DESCRIBE, Type.CLUSTER))
        changes = [upsertion(user, "SCRAM-SHA-256", "secret") for user in ("carl", "dora")]
        assert await alter_credentials(world.wire, *changes) == dict.fromkeys(("carl", "dora"), 31)


async def test_one_request_cannot_exceed_the_limit_of_users() -> None:
    async with broker_with_sasl(**{"scram.max.users": "3"}) as broker, RawConnection(broker.address) as wire:
        codes = await alter_credentials(wire, *(upsertion(f"u{number}", "SCRAM-SHA-256", "x") for number in range(6)))
        assert sorted(codes.values()) == [0] * 3 + [ErrorCode.POLICY_VIOLATION] * 3
        assert len(broker.metadata.scram_users) == 3


async def test_requests_that_waited_until_the_end_of_the_session_are_not_executed() -> None:
    settings = {"connections.max.reauth.ms": "400", "connection.max.inflight.requests": "1"}
    async with broker_with_sasl(**settings) as broker, RawConnection(sasl_address(broker)) as wire:
        assert (await log_in(wire, "PLAIN", "alice", "alice;secret")).session_lifetime_ms == 400
        await wire.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000), 7)
        fetched = [FetchTopic("t", partitions=[FetchPartition(0, -1, 0, partition_max_bytes=1000)])]
        wire.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=fetched), 12)
        wire.send(CreateTopicsRequest([CreatableTopic("late", 1, 1)], 1000), 7)
        assert len(await wire.receive_bytes()) < 100  # the Fetch ends with the session
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await wire.receive_bytes()
        assert broker.metadata.topic("late") is None
