"""Reads that do not wait for records create no log, however many partitions were never used.

If the log of a never-used partition cannot be created, a Fetch that would wait is answered with an error.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from oncelog.broker.log import IsolationLevel
from oncelog.broker.node import BrokerNode
from oncelog.broker.partitions.partition import FIRST_LEADER_EPOCH, UNUSED
from oncelog.broker.system.ports import RealFileSystem
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from support.faulty_filesystem import FaultyFileSystem
from support.logs import open_log
from support.raw_connection import RawConnection, batch, values_in

E = ErrorCode
PARTITIONS = 300


@pytest.fixture
async def broker() -> AsyncIterator[BrokerNode]:
    async with BrokerNode(durability="os", logging_level="error") as broker:
        yield broker


class FullFileSystem(RealFileSystem):
    """A file system that has no space for the directories of the topic `t`."""

    def make_directory(self, path: str) -> None:
        if "/t-" in path:
            raise OSError(errno.ENOSPC, "no space left", path)
        super().make_directory(path)


def fetch(offset: int = 0, last_fetched_epoch: int = -1, **fields: Any) -> FetchRequest:
    partitions = [
        FetchPartition(index, -1, offset, last_fetched_epoch, partition_max_bytes=1 << 20)
        for index in range(PARTITIONS)
    ]
    return FetchRequest(topics=[FetchTopic("t", partitions=partitions)], session_epoch=-1, **fields)


@pytest.mark.parametrize(
    "waiting",
    [
        {"max_wait_ms": 0, "min_bytes": 1},
        {"max_wait_ms": 60_000, "min_bytes": 0},
        {"max_wait_ms": 60_000, "min_bytes": 1},
    ],
)
async def test_a_fetch_that_is_answered_at_once_creates_no_logs(broker: BrokerNode, waiting: dict[str, int]) -> None:
    async with RawConnection(broker.address) as wire:
        await broker.metadata.create_topic("t", PARTITIONS, {})
        await wire.produce("t", batch(b"v"))  # enough for a Fetch that would wait
        before = broker.log_manager.open_logs
        rows = (await wire.call(fetch(**waiting), 12)).responses[0].partitions
        assert broker.log_manager.open_logs == before
        assert [values_in(row.records) for row in rows] == [[b"v"], *[[] for _ in range(PARTITIONS - 1)]]
        assert {(row.error_code, row.log_start_offset) for row in rows} == {(0, 0)}
        assert {row.high_watermark for row in rows[1:]} == {0}


async def test_an_offset_or_an_epoch_that_an_unused_partition_never_had(broker: BrokerNode) -> None:
    async with RawConnection(broker.address) as wire:
        await broker.metadata.create_topic("t", PARTITIONS, {})
        before = broker.log_manager.open_logs
        rows = (await wire.call(fetch(offset=1, max_wait_ms=0), 12)).responses[0].partitions
        assert {row.error_code for row in rows} == {E.OFFSET_OUT_OF_RANGE}
        rows = (await wire.call(fetch(offset=1, last_fetched_epoch=0, max_wait_ms=0), 12)).responses[0].partitions
        assert {(row.error_code, row.diverging_epoch.epoch, row.diverging_epoch.end_offset) for row in rows} == {
            (0, 0, 0)
        }
        assert broker.log_manager.open_logs == before


async def test_the_ends_of_epochs_create_no_logs(broker: BrokerNode) -> None:
    async with RawConnection(broker.address) as wire:
        await broker.metadata.create_topic("t", PARTITIONS, {})
        before = broker.log_manager.open_logs
        asked = [OffsetForLeaderPartition(index, -1, 0) for index in range(PARTITIONS)]
        request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic("t", asked)])
        rows = (await wire.call(request, 4)).topics[0].partitions
        assert {(row.error_code, row.leader_epoch, row.end_offset) for row in rows} == {(0, 0, 0)}
        assert broker.log_manager.open_logs == before


async def test_a_fetch_gets_an_error_if_logs_cannot_be_created() -> None:
    async with BrokerNode(durability="os", logging_level="error", fs=FullFileSystem()) as broker:
        await broker.metadata.create_topic("t", PARTITIONS, {})
        async with RawConnection(broker.address) as wire:
            rows = (await wire.call(fetch(max_wait_ms=60_000, min_bytes=1), 12)).responses[0].partitions
            assert [row.error_code for row in rows] == [E.KAFKA_STORAGE_ERROR] * PARTITIONS
            rows = (await wire.call(fetch(max_wait_ms=0), 12)).responses[0].partitions
            assert {row.error_code for row in rows} == {0}, "a Fetch that does not wait needs no logs"


async def test_an_offline_partition_is_no_reason_to_refuse_unused_ones(broker: BrokerNode) -> None:
    async with RawConnection(broker.address) as wire:
        await broker.metadata.create_topic("t", PARTITIONS, {})
        broker.log_manager.offline[("t", 0)] = KafkaError(E.KAFKA_STORAGE_ERROR)
        rows = (await wire.call(fetch(max_wait_ms=60_000, min_bytes=1), 12)).responses[0].partitions
        assert [row.error_code for row in rows] == [E.KAFKA_STORAGE_ERROR, *[0] * (PARTITIONS - 1)]


@pytest.mark.parametrize("max_wait_ms", [0, 60_000])
async def test_unused_partitions_of_a_failed_data_directory_cannot_be_read(
    broker: BrokerNode, max_wait_ms: int
) -> None:
    async with RawConnection(broker.address) as wire:
        await broker.metadata.create_topic("t", PARTITIONS, {})
        broker.log_manager._fail_directory(OSError(errno.EIO, "failed on purpose"))
        rows = (await wire.call(fetch(max_wait_ms=max_wait_ms, min_bytes=1), 12)).responses[0].partitions
        assert {row.error_code for row in rows} == {E.KAFKA_STORAGE_ERROR}


async def test_a_failed_data_directory_has_no_leaders(broker: BrokerNode) -> None:
    async with RawConnection(broker.address) as wire:
        await broker.metadata.create_topic("t", PARTITIONS, {})
        broker.log_manager._fail_directory(OSError(errno.EIO, "failed on purpose"))
        answer = await wire.call(ElectLeadersRequest(0, [TopicPartitions("t", [0])]), 2)
        (row,) = answer.replica_election_results[0].partition_result
        assert row.error_code == E.PREFERRED_LEADER_NOT_AVAILABLE


def test_an_unused_log_answers_like_a_new_one() -> None:
    new = open_log(FaultyFileSystem())
    new.take_over(FIRST_LEADER_EPOCH)

    def outcome(call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except KafkaError as error:
            return error.code

    for isolation in IsolationLevel:
        for offset in (-1, 0, 1):
            assert outcome(UNUSED.read, offset, 100, isolation) == outcome(new.read, offset, 100, isolation)
    for epoch in (-1, 0, 1):
        assert UNUSED.end_offset_for_epoch(epoch) == new.end_offset_for_epoch(epoch)
    assert UNUSED.high_watermark == new.high_watermark
