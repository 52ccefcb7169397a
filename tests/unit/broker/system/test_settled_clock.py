"""A wall clock that jumps ahead and back makes nothing expire."""

from __future__ import annotations

from typing import Any

import pytest
from oncelog.broker.coordinator.group.coordinator import Commit, Committer
from oncelog.broker.node import BrokerNode
from oncelog.broker.system.ports import SystemClock
from oncelog.broker.system.settled_clock import TOLERATED_JUMP_MS, SettledClock

SETTLE_MS = 600_000
DAYS_MS = 8 * 86_400_000


class Clocks(SystemClock):
    """A monotonic clock that the test sets, and a wall clock that is `ahead_ms` ahead of it."""

    __slots__ = ("ahead_ms", "passed_ms")

    def __init__(self) -> None:
        self.passed_ms = 0
        self.ahead_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.passed_ms + self.ahead_ms

    def monotonic(self) -> float:
        return self.passed_ms / 1000


class Lines:
    """A logger that keeps its warnings."""

    def __init__(self) -> None:
        self.warnings: list[dict[str, Any]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.warnings.append({"event": event, **fields})


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def settled(clocks: Clocks, lines: Lines) -> SettledClock:
    return SettledClock(clocks, SETTLE_MS, lines, "the test")


@pytest.mark.parametrize("ahead_ms", [0, TOLERATED_JUMP_MS, -1, -DAYS_MS])
def test_a_clock_that_goes_or_goes_back_is_believed(
    clocks: Clocks, lines: Lines, settled: SettledClock, ahead_ms: int
) -> None:
    clocks.passed_ms += DAYS_MS
    clocks.ahead_ms += ahead_ms
    assert settled.now_ms() == clocks.now_ms()
    assert lines.warnings == []


def test_a_clock_that_jumps_ahead_is_believed_when_it_has_stayed_there(
    clocks: Clocks, lines: Lines, settled: SettledClock
) -> None:
    before_ms = clocks.now_ms()
    clocks.ahead_ms += DAYS_MS
    for passed_ms in (0, 1, SETTLE_MS - 1):
        clocks.passed_ms = passed_ms
        assert settled.now_ms() == before_ms + passed_ms
    clocks.passed_ms = SETTLE_MS
    assert settled.now_ms() == clocks.now_ms()
    assert [line["ahead_ms"] for line in lines.warnings] == [DAYS_MS], "said once"


def test_each_jump_has_to_last(clocks: Clocks, lines: Lines, settled: SettledClock) -> None:
    before_ms = clocks.now_ms()
    for jumps, jump_ms in enumerate((DAYS_MS, DAYS_MS, -2 * DAYS_MS, DAYS_MS), 1):
        clocks.ahead_ms += jump_ms
        clocks.passed_ms = jumps * (SETTLE_MS - 1)
        assert settled.now_ms() == before_ms + clocks.passed_ms
    assert [line["ahead_ms"] for line in lines.warnings] == [DAYS_MS, 2 * DAYS_MS, DAYS_MS]


def test_nothing_waits_if_the_setting_is_zero(clocks: Clocks, lines: Lines) -> None:
    settled = SettledClock(clocks, 0, lines, "the test")
    clocks.ahead_ms += DAYS_MS
    assert settled.now_ms() == clocks.now_ms()
    assert lines.warnings == []


@pytest.mark.oncelog_only(reason="sets the broker's clock")
@pytest.mark.parametrize(("settle_ms", "stays"), [(SETTLE_MS, True), (0, False)])
async def test_offsets_and_transactional_ids_survive_a_jump_of_the_wall_clock(
    clocks: Clocks, settle_ms: int, stays: bool
) -> None:
    config = {"expiry_clock_settle_ms": settle_ms}
    async with BrokerNode(clock=clocks, config=config, logging_level="error", durability="os") as broker:
        await broker.metadata.create_topic("t", 1, {})
        groups, transactions = broker.group_coordinator, broker.transaction_coordinator
        groups.commit_offsets("g", Committer(), [Commit(("t", 0), 5, -1, None)])
        await transactions.init_producer_id("id", 60_000)
        clocks.ahead_ms += DAYS_MS
        await groups._cleanup.expire()
        transactions.timers._expire()
        clocks.ahead_ms -= DAYS_MS
        assert len(groups.fetch_offsets("g", None)) == stays
        assert (transactions.state.peek("id") is not None) == stays
