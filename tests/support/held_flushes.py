"""Hold the flushes of `__transaction_state` until a test releases them."""

from __future__ import annotations

import asyncio

import pytest
from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import KafkaError


class HeldFlushes:
    """The flushes of what the transaction coordinator writes between `hold` and `release` or `fail`."""

    def __init__(self, broker: BrokerNode, monkeypatch: pytest.MonkeyPatch) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        log = broker.transaction_coordinator.state._state_log
        monkeypatch.setattr(log, "pending_flush", self._pending_flush)
        self._holding = False

    def _pending_flush(self, partition: int, end_offset: int) -> asyncio.Future[None] | None:
        if not self._holding:
            return None
        flush: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(flush)
        return flush

    def hold(self) -> None:
        """Let nothing that is written from now on become durable."""
        self._holding = True

    def release(self) -> None:
        """Make everything durable that was held."""
        self._holding = False
        for flush in self._waiting:
            flush.set_result(None)

    def fail(self, error: KafkaError) -> None:
        """Fail the flushes that were held."""
        self._holding = False
        for flush in self._waiting:
            flush.set_exception(error)
