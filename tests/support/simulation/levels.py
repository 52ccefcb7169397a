"""Change feature levels from one start of the broker to the next: transaction.version, and the level of the extension.

At each connection, clients learn whether the extension is active, as the bundled client does. If it is not, they use
Kafka's protocol. Only kinds that are safe by their generations alone therefore work in these histories.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.schema import Request, Response

from .kinds import GENERATION

R = TypeVar("R", bound=Response)

SAFE = (*GENERATION, "aware", "aware, pre-registered", "aware, v4 session", "aware, static")
"""Kinds whose offset commits are also fenced by generations, and whose OffsetFetch waits for pending commits."""

LEVELED = (3, 8, 13)
"""The remainders modulo 19 of the seeds whose histories have changing levels."""


@dataclass(frozen=True)
class Level:
    """The feature levels of one start of the broker."""

    transaction_version: int = 2
    protocol_version: str = "4.1"

    @property
    def has_extension(self) -> bool:
        """Whether group.aware.transaction is active."""
        return self.protocol_version != "4.0"

    @property
    def settings(self) -> dict[str, str]:
        """The broker's settings for these levels."""
        return {
            "transaction.version": str(self.transaction_version),
            "inter.broker.protocol.version": self.protocol_version,
        }


def is_leveled(seed: int) -> bool:
    """Return whether the levels change in the history of this seed."""
    return seed % 19 in LEVELED


def drawn(rng: Random) -> Level:
    """Return random levels for one start."""
    return Level(rng.choice((0, 1, 2, 2)), rng.choice(("4.0", "4.1", "4.1")))


def without_extension(request: Request[R]) -> Request[R]:
    """Return the request as a client sends it to a broker without the extension."""
    changed = copy(request)
    changes: dict[str, Any] = {}
    if isinstance(request, InitProducerIdRequest):
        changes = {"consumer_group_id": None, "consumer_group_generation": -1, "assigned_partitions": []}
    elif isinstance(request, AddPartitionsToTxnRequest):
        changes = {"session": False}
    elif isinstance(request, EndTxnRequest):
        changes = {"topics": None}
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed
