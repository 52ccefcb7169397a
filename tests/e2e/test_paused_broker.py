"""The broker's process is stopped for a while: requests that arrived meanwhile count before timeouts do."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.heartbeat import HeartbeatRequest
from support.broker import BrokerProcess
from support.group_wire import Member
from support.transaction_wire import TransactionWire
from support.wire import Wire

pytestmark = pytest.mark.oncelog_only(reason="stops the process of a broker of its own")

TIMEOUT_MS = 2_000


@pytest.mark.parametrize("later_ms", [20, 400, 1_500])
def test_requests_that_arrived_while_the_process_was_stopped_are_in_time(tmp_path: Path, later_ms: int) -> None:
    settings = (f"group.min.session.timeout.ms={TIMEOUT_MS}", "group.initial.rebalance.delay.ms=0")
    arguments = [word for setting in settings for word in ("--set", setting)]
    with BrokerProcess(tmp_path, *arguments) as broker, Wire(broker.address) as heart, Wire(broker.address) as wire:
        wire.create_topic("t", 1)
        producer = TransactionWire(wire, "id")
        producer.init(timeout_ms=TIMEOUT_MS)
        member = Member(heart, "g", session_ms=TIMEOUT_MS)
        member.join()
        member.sync({member.member_id: b"all"})
        assert producer.add("t", 0) == {0: ErrorCode.NONE}
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            heart.send(HeartbeatRequest("g", member.generation, member.member_id), 4)
            wire.send(EndTxnRequest("id", producer.producer_id, producer.epoch, True), 3)
            time.sleep((TIMEOUT_MS + later_ms) / 1000)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        assert heart.receive().error_code == ErrorCode.NONE
        assert wire.receive().error_code == ErrorCode.NONE
