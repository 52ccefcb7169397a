"""Apache Kafka's own tool reads our `__transaction_state`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from oncelog.broker.coordinator.state_log import partition_for_key
from support.apache_kafka import java
from support.broker import BrokerProcess
from support.transaction_wire import TransactionWire
from support.wire import Wire

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("level", [0, 2])
def test_dump_log_segments_reads_the_transaction_log(tmp_path: Path, level: int) -> None:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("java and mvn are not installed")
    with BrokerProcess(tmp_path, "--set", f"transaction.version={level}") as broker, Wire(broker.address) as wire:
        wire.create_topic("t", 3)
        txn = TransactionWire(wire, "my-id")
        txn.init(timeout_ms=12_345)
        txn.add("t", 0, 2)
        txn.produce("t", b"x")
        txn.end(True)
        txn.add("t", 1)  # waits until the transaction before is complete
        data = Path(broker.data_dir)
    segment = data / f"__transaction_state-{partition_for_key('my-id', 50)}" / f"{0:020}.log"
    dump = java("kafka.tools.DumpLogSegments", "--files", str(segment), "--transaction-log-decoder").stdout
    records = [line for line in dump.splitlines() if "transactionalId" in line]
    statuses = [0, 1, 2, 4, 1]  # Empty, Ongoing, PrepareCommit, CompleteCommit, Ongoing
    assert len(records) == len(statuses), dump
    for line, status in zip(records, statuses, strict=True):
        assert '"my-id"' in line
        assert f'"transactionStatus":{status}' in line
        assert '"transactionTimeoutMs":12345' in line
        assert f'"producerId":{txn.producer_id}' in line
