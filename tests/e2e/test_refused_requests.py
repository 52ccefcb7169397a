"""A partition that is offline refuses requests for as long as it is: no refused request stays in memory."""

from __future__ import annotations

import errno
import gc

import pytest
from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from oncelog.protocol.messages.produce import ProduceRequest
from support.new_objects import new_objects
from support.raw_connection import RawConnection, batch

pytestmark = pytest.mark.oncelog_only(reason="looks into this broker")

TIMES = 20


async def test_refused_requests_leave_nothing_in_memory() -> None:
    async with BrokerNode(logging_level="error") as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t")
        assert (await wire.produce("t", batch(b"x"))).error_code == ErrorCode.NONE
        log = broker.log_manager.get("t", 0)
        assert log is not None
        log.files.disk_failed(OSError(errno.EIO, "the disk is broken"))
        with new_objects() as alive:
            for _ in range(TIMES):
                deletion = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 1)])], 1000)
                codes = [
                    (await wire.produce("t", batch(b"y"))).error_code,
                    (await wire.call(deletion, 2)).topics[0].partitions[0].error_code,
                ]
                assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
            del deletion
            gc.collect()
            assert not alive(ProduceRequest, DeleteRecordsRequest)
