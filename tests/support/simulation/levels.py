"""Feature levels that change from one start of the broker to the next: transaction.version, and the extension's.

Clients learn at each connection whether the extension acts, as the bundled client does, and speak stock Kafka where it
does not. So only those kinds work here that are safe by their generations alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar, cast

from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.schema import Request, Response

from .kinds import GENERATION

R = TypeVar("R", bound=Response)

SAFE = (*GENERATION, "aware", "aware, pre-registered", "aware, v4 session", "aware, static")
"""Kinds whose offsets are fenced by generations, too, and whose OffsetFetch waits for pending ones."""

LEVELED = (3, 8, 13)
"""What seeds leave over when divided by 19 whose histories have changing levels."""


@dataclass(frozen=True)
class Level:
    """What one life of the broker is configured with."""

    transaction_version: int = 2
    protocol_version: str = "4.1"

    @property
    def has_extension(self) -> bool:
        """Whether group.aware.transaction acts."""
        return self.protocol_version != "4.0"

    @property
    def settings(self) -> dict[str, str]:
        """The broker's settings."""
        return {
            "transaction.version": str(self.transaction_version),
            "inter.broker.protocol.version": self.protocol_version,
        }


def is_leveled(seed: int) -> bool:
    """Whether levels change in the history of the seed."""
    return seed % 19 in LEVELED


def drawn(rng: Random) -> Level:
    """The level of one life."""
    return Level(rng.choice((0, 1, 2, 2)), rng.choice(("4.0", "4.1", "4.1")))


def without_extension(request: Request[R]) -> Request[R]:
    """The request as a client sends it to a broker without the extension."""
    changes: dict[str, Any] = {}
    if isinstance(request, InitProducerIdRequest):
        changes = {"consumer_group_id": None, "consumer_group_generation": -1, "assigned_partitions": []}
    elif isinstance(request, AddPartitionsToTxnRequest):
        changes = {"session": False}
    elif isinstance(request, EndTxnRequest):
        changes = {"topics": None}
    return cast(Request[R], replace(cast(Any, request), **changes)) if changes else request
