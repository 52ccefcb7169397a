"""A wall clock that jumps: records, transactions and groups go on. The broker is in this process, for its clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from oncelog import Producer
from oncelog.broker.node import BrokerNode
from oncelog.broker.system.ports import SystemClock
from support.faults import fill, read_all
from support.raw_connection import RawConnection, batch

pytestmark = pytest.mark.oncelog_only(reason="sets the broker's clock")
DAY_MS = 86_400_000


class JumpingClock(SystemClock):
    """The system's clocks, the wall clock moved by `offset_ms`."""

    __slots__ = ("offset_ms",)

    def __init__(self) -> None:
        self.offset_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.offset_ms


@pytest.mark.parametrize("jump_ms", [30 * DAY_MS, -30 * DAY_MS, -400 * DAY_MS])
async def test_a_jump_of_the_wall_clock_ends_nothing(tmp_path: Path, jump_ms: int) -> None:
    clock = JumpingClock()
    settings = {"log_retention_check_interval_ms": 50}
    async with BrokerNode(tmp_path, clock=clock, config=settings) as broker, RawConnection(broker.address) as wire:
        values = await fill(wire, message_timestamp_after_max_ms=str(2**63 - 1))
        for value in (b"before", b"behind"):
            async with (
                Producer(bootstrap_servers=broker.address, transactional_id="jumped") as producer,
                producer.transaction() as transaction,
            ):
                await transaction.send("t", value)
            clock.offset_ms = jump_ms
        code, found = await read_all(wire)
        assert (code, found[: len(values)]) == (0, values)
        assert (await wire.produce("t", batch(b"last"))).error_code == 0
    async with BrokerNode(tmp_path) as broker, RawConnection(broker.address) as wire:
        data = (await wire.fetch("t", len(values))).responses[0].partitions[0]
        assert data.error_code == 0
        assert data.last_stable_offset == data.high_watermark
