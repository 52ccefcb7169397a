"""A request about very many access rules, tokens or quotas does not hold up other clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from oncelog.auth.principal import ANONYMOUS, Principal
from oncelog.broker.acls.acl import Acl
from oncelog.broker.handlers import create_delegation_token, describe_delegation_token
from oncelog.broker.node import BrokerNode
from oncelog.protocol.access_rules import AclOperation, AclResourceType, PatternType, Permission
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)
from oncelog.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from oncelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from oncelog.protocol.messages.describe_acls import DescribeAclsRequest
from oncelog.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from oncelog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.schema import Request
from support.counted_lines import lines_of_longest_turn
from support.raw_connection import RawConnection
from support.sasl import broker_with_sasl

pytestmark = [pytest.mark.oncelog_only(reason="looks at this broker's turns"), pytest.mark.timeout(120)]

ROWS = 40_000
LINES_AT_ONCE = 36_000
"""A turn of the event loop executes fewer lines of Python than there are rows."""

CLIENT = "User:ANONYMOUS"
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ANY = AclOperation.ANY


@asynccontextmanager
async def limited_broker(super_users: str = "") -> AsyncIterator[BrokerNode]:
    settings = {
        "durability": "os",
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": super_users,
        "delegation.token.secret.key": "key",
    }
    async with broker_with_sasl(**settings) as broker:
        assert broker.dispatcher.apis(), "all handlers are imported: no turn of a test does that"
        yield broker


def rule(name: str, principal: str, permission: Permission = Permission.ALLOW, pattern: PatternType = LITERAL) -> Acl:
    return Acl(AclResourceType.TOPIC, pattern, name, principal, "*", AclOperation.WRITE, permission)


async def test_no_turn_goes_through_all_rules_of_a_client() -> None:
    async with limited_broker() as broker:
        broker.metadata.acls.add([rule("t", CLIENT, Permission.DENY, PREFIXED)])
        broker.metadata.acls.add(rule(f"t-{number}", CLIENT) for number in range(ROWS))
        assert await lines_of_longest_turn(broker, InitProducerIdRequest(None, 60_000), 4) < LINES_AT_ONCE
        async with RawConnection(broker.address) as wire:
            assert (await wire.call(InitProducerIdRequest(None, 60_000), 4)).error_code != 0
            broker.metadata.acls.add([rule("u", CLIENT)])
            assert (await wire.call(InitProducerIdRequest(None, 60_000), 4)).error_code == 0


def of_nobody(name: str) -> DeleteAclsFilter:
    return DeleteAclsFilter(AclResourceType.TOPIC, name, LITERAL, "User:nobody", None, ANY, Permission.ANY)


ABOUT_ONE_NAME: dict[str, tuple[Callable[[], Request[Any]], int]] = {
    "DescribeAcls": (
        lambda: DescribeAclsRequest(AclResourceType.TOPIC, "t", LITERAL, None, None, AclOperation.READ, Permission.ANY),
        1,
    ),
    "DeleteAcls": (lambda: DeleteAclsRequest([of_nobody("t")] * 10), 1),
}


@pytest.mark.parametrize("api", ABOUT_ONE_NAME)
async def test_no_turn_goes_through_all_rules_of_a_name(api: str) -> None:
    build, version = ABOUT_ONE_NAME[api]
    async with limited_broker(CLIENT) as broker:
        broker.metadata.acls.add(rule("t", f"User:{number}") for number in range(ROWS))
        assert await lines_of_longest_turn(broker, build(), version) < LINES_AT_ONCE


OF_MANY_TOPICS: dict[str, tuple[Callable[[], Request[Any]], int]] = {
    "DescribeTopicPartitions": (
        lambda: DescribeTopicPartitionsRequest([TopicRequest(name) for name in long_names()], 2000, None),
        0,
    ),
    "ListOffsets": (
        lambda: ListOffsetsRequest(
            -1, 0, [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, -1)]) for name in long_names()]
        ),
        7,
    ),
}


def long_names() -> list[str]:
    return [f"{number:04}".ljust(200, "n") for number in range(2000)]


@pytest.mark.parametrize("api", OF_MANY_TOPICS)
async def test_no_turn_compares_all_names_of_a_request_with_prefixes_of_all_lengths(api: str) -> None:
    build, version = OF_MANY_TOPICS[api]
    async with limited_broker() as broker:
        broker.metadata.acls.add(rule("p" * length, CLIENT, pattern=PREFIXED) for length in range(1, 200))
        assert await lines_of_longest_turn(broker, build(), version) < LINES_AT_ONCE


async def test_no_turn_describes_all_renewers_of_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_delegation_token, "check_connection", lambda context: None)
    renewers = [Principal("User", str(number)) for number in range(1000)]
    async with limited_broker(CLIENT) as broker:
        assert broker.delegation_tokens is not None
        for _ in range(2 * LINES_AT_ONCE // len(renewers)):
            await broker.delegation_tokens.create(ANONYMOUS, ANONYMOUS, renewers, -1)
        assert await lines_of_longest_turn(broker, DescribeDelegationTokenRequest(None), 3) < LINES_AT_ONCE


ABOUT_PRINCIPALS: dict[str, tuple[Callable[[], Request[Any]], int]] = {
    "DescribeDelegationToken": (
        lambda: DescribeDelegationTokenRequest([DescribeDelegationTokenOwner("User", f"u{n}") for n in range(ROWS)]),
        3,
    ),
    "CreateDelegationToken": (
        lambda: CreateDelegationTokenRequest(None, None, [CreatableRenewers("User", "") for _ in range(ROWS)], -1),
        3,
    ),
    "AlterClientQuotas": (
        lambda: AlterClientQuotasRequest(
            [RequestEntryData([EntityData("user", f"u{n}") for n in range(ROWS)], [OpData("producer_byte_rate", 1.0)])],
            True,
        ),
        1,
    ),
}


@pytest.mark.parametrize("api", ABOUT_PRINCIPALS)
async def test_no_turn_goes_through_all_principals_of_a_request(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, version = ABOUT_PRINCIPALS[api]
    for handler in (create_delegation_token, describe_delegation_token):
        monkeypatch.setattr(handler, "check_connection", lambda context: None)
    async with limited_broker(CLIENT) as broker:
        assert await lines_of_longest_turn(broker, build(), version) < LINES_AT_ONCE
        async with RawConnection(broker.address) as wire:
            response: Any = await wire.call(build(), version)
            if isinstance(response, AlterClientQuotasResponse):
                assert len(response.entries[0].entity) == ROWS, "the client recognises its entry"
                response = response.entries[0]
            assert response.error_code == (0 if api.startswith("Describe") else ErrorCode.INVALID_REQUEST)
