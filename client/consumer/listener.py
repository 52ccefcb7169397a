"""`RebalanceListener`: the application's callbacks in a rebalance."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Final

from ..errors import IllegalStateError
from ..values import TopicPartition

METHODS: Final = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")


class RebalanceListener:
    """Base class of rebalance listeners. Override its methods as plain or `async` methods. They run inside `poll()`.

    While `on_partitions_revoked` is running, this member still owns the partitions: commit the processed records, and
    finish or abort the transaction. When `on_partitions_lost` is called, this member no longer owns the partitions:
    another member may own them, and a commit would fail. With the cooperative protocol, the methods get only the
    partitions that change their owner. An exception that a method raises ends the poll that called it. A method must
    not be a generator, because its body would never run; `subscribe` refuses generators.
    """

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Called after a rebalance with the newly assigned partitions. This method may `seek` in the partitions."""

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Called before partitions are given up, while this member still owns them."""

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Called when partitions have already been lost. By default, this method calls `on_partitions_revoked`."""
        return self.on_partitions_revoked(partitions)


def check_listener(listener: object) -> None:
    """Raise IllegalStateError if a listener lacks a method of RebalanceListener, or implements one as a generator."""
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
    """Await the result of a listener's method if it is awaitable. Raises IllegalStateError for a generator."""
    if inspect.isawaitable(result):
        await result
    elif inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise IllegalStateError(_is_generator(method))


def _is_generator(method: Callable[..., object]) -> str:
    name = getattr(method, "__qualname__", repr(method))
    return f"rebalance listener: {name} returns a generator, whose body would never run: remove the yield"
