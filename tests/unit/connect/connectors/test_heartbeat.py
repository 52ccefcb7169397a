"""HeartbeatSource: transactions end after transaction.size records and after the last record; an offset is a number."""

from __future__ import annotations

import pytest
from oncelog.connect import ConnectError, SourceRecord
from oncelog.connect.connectors.heartbeat.connector import HeartbeatSourceConnector
from oncelog.connect.task.boundaries import ConnectorBoundary, End
from oncelog.connect.worker.task_context import TaskContext
from support.source_tasks import Source


@pytest.mark.parametrize(
    ("limit", "ends"), [("7", [2, 5, 6]), ("6", [2, 5])], ids=["last-group-is-smaller", "last-group-is-full"]
)
async def test_the_last_group_of_records_is_committed(limit: str, ends: list[int]) -> None:
    config = {"topic": "t", "interval.ms": "0", "batch.size": "2", "limit": limit, "transaction.size": "3"}
    new = Source(HeartbeatSourceConnector, config)
    running, boundary = await new.task(), ConnectorBoundary()
    running.task.context = TaskContext(running.config, new.offsets, boundary, True)
    records: list[SourceRecord] = []
    async with running as task:
        while len(records) < int(limit):
            records += await task.poll()
    assert [record.value for record in records if boundary.after_record(record) is End.COMMIT] == ends
    assert boundary.after_batch() is None


async def test_a_count_that_is_no_number_is_refused() -> None:
    new = Source(HeartbeatSourceConnector, {"topic": "t"})
    new.offsets.commit([SourceRecord(topic="t", source_partition={"task": 0}, source_offset={"count": True})])
    with pytest.raises(ConnectError, match="has no count"):
        async with await new.task():
            pass
