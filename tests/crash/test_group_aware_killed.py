"""kill -9 while a group-aware producer takes a partition over: asking again finishes it, the loser commits nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from oncelog.protocol.errors import CONCURRENT_PRODUCER_COMMIT, PENDING_TRANSACTION, ErrorCode
from oncelog.protocol.messages.init_producer_id import AssignedPartitions, InitProducerIdRequest
from support.broker import BrokerProcess
from support.group_aware_wire import GroupAwareWire
from support.group_wire import fetch
from support.transaction_wire import read
from support.wire import Wire, retry

E = ErrorCode
GROUP, INPUT = "g", ("input", 0)
STEPS = [None, "partitions_claimed", "producer_fenced", "transaction_aborted", "producer_initialised"]
"""What the broker says in the course of the takeover; None: the request has only been sent."""


def connect(broker: BrokerProcess) -> Wire:
    return Wire(broker.address, extension_version=1)


def said(broker: BrokerProcess, event: str) -> int:
    return broker.log.read_text(errors="replace").count(event)


def send_takeover(taker: GroupAwareWire, generation: int) -> None:
    request = InitProducerIdRequest(taker.tid, 60_000, consumer_group_id=GROUP, consumer_group_generation=generation)
    request.assigned_partitions = [AssignedPartitions(INPUT[0], [INPUT[1]])]
    taker.wire.send(request, 5)


def kill_at(broker: BrokerProcess, step: str | None, before: int, pause_s: float) -> None:
    """Kill when the step is told, or after a while."""
    if step is not None:
        deadline = time.monotonic() + 2
        while said(broker, step) == before and time.monotonic() < deadline:
            time.sleep(0.0005)
    time.sleep(pause_s)
    broker.kill9()


def offset_of(wire: Wire) -> int:
    found = retry(lambda: fetch(wire, GROUP, [INPUT], stable=True)[INPUT], lambda got: got.error, PENDING_TRANSACTION)
    assert found.error is E.NONE
    return found.offset


@pytest.mark.parametrize("step", STEPS)
def test_a_takeover_that_a_kill_cuts_short_is_finished_by_asking_again(tmp_path: Path, step: str | None) -> None:
    committed = -1
    with BrokerProcess(tmp_path, "--set", "logging.level=info") as broker:
        with connect(broker) as wire:
            wire.create_topic("input")
            wire.create_topic("output")
        for number, pause_s in enumerate((0.0, 0.002), 1):
            generation = 2 * number
            with connect(broker) as wire:
                loser = GroupAwareWire(wire, f"loser-{number}")
                assert loser.claim(GROUP, generation - 1, INPUT) is E.NONE
                assert loser.produce("output", b"lost", version=12) == 0
                assert loser.commit_offset(GROUP, INPUT, 1000 + number, generation - 1) is E.NONE
                before = 0 if step is None else said(broker, step)
                taker = GroupAwareWire(wire, f"taker-{number}")
                send_takeover(taker, generation)
                kill_at(broker, step, before, pause_s)
            broker.restart()
            with connect(broker) as wire, connect(broker) as other:
                taker.wire, loser.wire = wire, other
                assert taker.claim(GROUP, generation, INPUT) is E.NONE
                assert offset_of(wire) == committed, "the loser never ended its transaction"
                assert loser.commit_offset(GROUP, INPUT, 2000, generation - 1) is not E.NONE
                assert loser.finish() is E.PRODUCER_FENCED
                seen = read(wire, "output")
                assert (seen.values, seen.last_stable_offset) == ([], seen.high_watermark)
                committed = number
                assert taker.commit_offset(GROUP, INPUT, committed, generation) is E.NONE
                assert taker.finish() is E.NONE
                assert offset_of(wire) == committed
        broker.kill9()
        broker.restart()
        with connect(broker) as wire:
            late = GroupAwareWire(wire, loser.tid)
            assert late.init().error_code == 0
            for generation_id in (-1, generation - 1):
                assert late.commit_offset(GROUP, INPUT, 3000, generation_id) is CONCURRENT_PRODUCER_COMMIT
            assert offset_of(wire) == committed
