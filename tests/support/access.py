"""A broker with access control in the test's process, whose ACLs the test changes at will.

All clients are ANONYMOUS. `World.only` replaces all rules, so that the next request sees the new ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from oncelog import Broker
from oncelog.broker.acls.acl import Acl
from oncelog.broker.api import authorization
from oncelog.broker.api.requirements import REQUIREMENTS
from oncelog.protocol.access_rules import AclOperation as Op
from oncelog.protocol.access_rules import AclResourceType as Type
from oncelog.protocol.access_rules import PatternType, Permission
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.schema import Struct
from support.raw_connection import RawConnection

__all__ = ["EVERYTHING", "Op", "Type", "World", "codes", "limited_broker", "refusals", "rule", "without_requirements"]

REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def rule(
    operation: Op,
    type: Type,
    name: str = "kafka-cluster",
    *,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:ANONYMOUS",
) -> Acl:
    """Return a rule for clients on any host."""
    return Acl(type, pattern, name, principal, "*", operation, permission)


def without_requirements(monkeypatch: pytest.MonkeyPatch, api: str) -> None:
    """Take the row of an API out of the table, for brokers that start from now on.

    The brokers get a copy of the table without this row. The table itself, which the documentation lists, is unchanged.
    """
    rows = {name: row for name, row in REQUIREMENTS.items() if name != api}
    monkeypatch.setattr(authorization, "REQUIREMENTS", rows)


EVERYTHING = [
    rule(Op.ALL, Type.TOPIC, "*"),
    rule(Op.ALL, Type.GROUP, "*"),
    rule(Op.ALL, Type.TRANSACTIONAL_ID, "*"),
    rule(Op.ALL, Type.CLUSTER),
]


class World:
    """A broker with access control, and one connection to it."""

    def __init__(self, broker: Broker, wire: RawConnection) -> None:
        self.broker = broker
        self.wire = wire
        self._metadata = broker._node.metadata

    async def only(self, *acls: Acl) -> None:
        """Replace all rules."""
        if former := list(self._metadata.acls):
            await self._metadata.delete_acls(former)
        if acls:
            await self._metadata.create_acls(acls)


@asynccontextmanager
async def limited_broker(**settings: Any) -> AsyncIterator[World]:
    """Start a broker with access control; at first every client may do everything."""
    async with (
        Broker(authorizer_class_name="StandardAuthorizer", **settings) as broker,
        RawConnection(broker.address) as wire,
    ):
        world = World(broker, wire)
        await world.only(*EVERYTHING)
        yield world


def codes(response: Struct) -> set[int]:
    """Return all error codes in a response other than 0."""
    return {code for code in _codes(response) if code}


def refusals(response: Struct) -> set[int]:
    """Return the error codes in a response that mean a denied operation."""
    return {code for code in _codes(response) if code in REFUSALS}


def _codes(struct: Struct) -> Iterator[int]:
    for spec in struct.fields:
        value = getattr(struct, spec.name)
        if spec.name.endswith("error_code"):
            yield value
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Struct):
                yield from _codes(item)
