"""Handle DescribeLogDirs: return the data directory, the size of its partitions, and its free space.

A partition that has never been used has size 0. Offline partitions are omitted, as in Kafka.

A health check sends a request without partitions, which concerns only the directory. The broker then makes a small
write to find out whether the disk responds, and answers KAFKA_STORAGE_ERROR if it does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ..api.handling import RequestContext, handles
from ..scheduling.steps import SLICE, Steps, ordered, waited

_PER_STEP: Final = 50
"""The number of partitions that are looked up in one step."""


@handles(DescribeLogDirsRequest)
def handle(context: RequestContext, request: DescribeLogDirsRequest) -> Steps[DescribeLogDirsResponse]:
    broker = context.broker
    result = DescribeLogDirsResult(0, os.path.abspath(broker.data_dir))
    failed = broker.log_manager.failed is not None
    if request.topics == [] and not failed:
        failed = (yield from waited(broker.check_disk())) is not None
    if failed:
        result.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
        return DescribeLogDirsResponse(results=[result])
    if request.topics is None:
        wanted = dict[str, set[int] | None].fromkeys((yield from ordered(list(broker.metadata.topics))))
    else:
        wanted = yield from _wanted(request.topics)
    for name, indexes in wanted.items():
        partitions = yield from _partitions(context, name, indexes)
        if partitions:
            result.topics.append(DescribeLogDirsTopic(name, partitions))
        yield 1
    with suppress(OSError):  # the default -1 means unknown
        result.total_bytes, result.usable_bytes = broker.log_manager.space()
    return DescribeLogDirsResponse(results=[result])


def _wanted(topics: Iterable[DescribableLogDirTopic]) -> Steps[dict[str, set[int] | None]]:
    """Return the requested partition indexes by topic name.

    Each value is a set. The type also allows None, because the caller uses None for all partitions of a topic.
    """
    wanted: dict[str, set[int] | None] = {}
    for topic in topics:
        indexes = wanted.setdefault(topic.topic, set())
        assert indexes is not None
        for start in range(0, len(topic.partitions), SLICE):
            piece = topic.partitions[start : start + SLICE]
            indexes.update(piece)
            yield len(piece)
        yield 1
    return wanted


def _partitions(context: RequestContext, name: str, indexes: set[int] | None) -> Steps[list[DescribeLogDirsPartition]]:
    """Return the rows of a topic's partitions with these indexes, or of all its partitions if `indexes` is None.

    Partitions that do not exist or are offline have no row.
    """
    replica_manager = context.broker.replica_manager
    topic = context.broker.metadata.topic(name)
    if topic is None:
        return []
    rows = []
    for index in range(topic.partitions):
        if indexes is None or index in indexes:
            size = replica_manager.size_on_disk(name, index)
            if size is not None:
                rows.append(DescribeLogDirsPartition(index, size, 0, False))
                yield context.rows()
        if index % _PER_STEP == 0:
            yield _PER_STEP
    return rows
