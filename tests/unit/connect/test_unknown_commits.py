"""Transactions of a task whose commit has no response: the task asks again, and notices that it was fenced."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from oncelog.client.errors import CommitUnknownError
from oncelog.connect.api.records import SourceRecord
from oncelog.connect.errors import FencedError, ProducerLostError, UnknownCommitError
from oncelog.connect.stores.ids import ConnectorTaskId
from oncelog.connect.task import exactly_once
from oncelog.connect.task.boundaries import PollBoundary
from oncelog.connect.task.exactly_once import ExactlyOnceDelivery
from oncelog.protocol.errors import ErrorCode
from support.virtual_time import VirtualTimeLoop

TASK = ConnectorTaskId("c", 0)
LATE = CommitUnknownError(ErrorCode.REQUEST_TIMED_OUT, "no answer")


class Coordinator:
    """The producer of a task, whose commits end as they are told: an error, or None for success."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = list(outcomes)

    async def begin_transaction(self) -> None: ...

    async def partitions_for(self, topic: str) -> int:
        return 1

    async def enqueue(self, topic: str, value: bytes | None, **_: Any) -> None: ...

    async def commit_transaction(self) -> None:
        if (error := self.outcomes.pop(0)) is not None:
            raise error


def commit(monkeypatch: pytest.MonkeyPatch, *outcomes: Exception | None) -> int:
    """Commit a transaction; return how often the task was told of a commit."""
    coordinator, told = Coordinator(*outcomes), 0
    monkeypatch.setattr(exactly_once, "Producer", lambda settings: coordinator)

    async def acknowledged(records: Any) -> None: ...

    async def committed() -> None:
        nonlocal told
        told += 1

    async def main() -> None:
        delivery = ExactlyOnceDelivery(
            TASK, {}, "offsets", PollBoundary(), lambda topic: None, acknowledged, committed, keep_records=False
        )
        record = SourceRecord(source_partition={"a": 1}, source_offset={"at": 1}, topic="t", value="v")
        await delivery.send(record, None)
        await delivery.batch_done()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(asyncio.wait_for(main(), 1000))
    assert not coordinator.outcomes
    return told


def test_a_commit_without_a_response_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert commit(monkeypatch, LATE, LATE, None) == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.PRODUCER_FENCED, FencedError),
        (ErrorCode.INVALID_PRODUCER_EPOCH, FencedError),
        (ErrorCode.UNKNOWN_SERVER_ERROR, UnknownCommitError),
        (ErrorCode.INVALID_TXN_STATE, UnknownCommitError),
    ],
)
def test_a_task_that_learns_no_result_knows_whether_it_was_fenced(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode, kind: type[ProducerLostError]
) -> None:
    with pytest.raises(kind):
        commit(monkeypatch, LATE, CommitUnknownError(code, "no result", can_ask_again=False))
