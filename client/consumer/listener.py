"""The application's part in a rebalance: `RebalanceListener`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Final

from ..errors import IllegalStateError
from ..values import TopicPartition

METHODS: Final = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")


class RebalanceListener:
    """Base class of rebalance listeners: override what you need, as plain or `async` methods. They run inside `poll()`.

    While `on_partitions_revoked` runs, this member still owns the partitions: commit what was processed, finish or
    abort a transaction. In `on_partitions_lost` it does not: another member may own them, and a commit would fail. With
    the cooperative protocol only partitions that really move are named. An exception ends the poll in which it is
    raised. A method must not be a generator: nothing would run its body, so `subscribe` refuses it.
    """

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Called after a rebalance with the newly assigned partitions; it may `seek` to set their positions."""

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Called before partitions are given up."""

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Called when partitions are already lost; calls `on_partitions_revoked` by default."""
        return self.on_partitions_revoked(partitions)


def check_listener(listener: object) -> None:
    """Raise IllegalStateError for a listener without one of the methods, or with one whose body nothing would run."""
    if listener is None:
        return
    for name in METHODS:
        method = getattr(listener, name, None)
        if not callable(method):
            raise IllegalStateError(
                f"listener = {listener!r:.100} has no method {name}: derive its class from RebalanceListener"
            )
        if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
            raise IllegalStateError(_is_generator(method))


async def settle(method: Callable[..., object], result: object) -> None:
    """Await what a listener's method returned, if it is awaitable; raises IllegalStateError for a generator."""
    if inspect.isawaitable(result):
        await result
    elif inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise IllegalStateError(_is_generator(method))


def _is_generator(method: Callable[..., object]) -> str:
    name = getattr(method, "__qualname__", repr(method))
    return f"rebalance listener: {name} returns a generator, and nothing runs its body: remove the yield"
