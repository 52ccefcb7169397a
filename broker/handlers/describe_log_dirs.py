"""Handle DescribeLogDirs: return the data directory, the size of its partitions, and its free space.

Health checks send a request for no partition, which asks about the directory alone. The broker then makes a small write
to find out whether the disk responds, and answers KAFKA_STORAGE_ERROR if it does not.
"""

from __future__ import annotations

import os
from contextlib import suppress

from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ..api.handling import RequestContext, handles
from ..scheduling.steps import SLICE, Steps, waited


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
    wanted = None
    if request.topics is not None:
        wanted = set[tuple[str, int]]()
        for topic in request.topics:
            for start in range(0, len(topic.partitions), SLICE):
                indexes = topic.partitions[start : start + SLICE]
                wanted.update([(topic.topic, index) for index in indexes])
                yield len(indexes)
            yield 1
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for log in broker.replica_manager.stored_logs():
        if wanted is None or (log.topic, log.partition) in wanted:
            topics.setdefault(log.topic, []).append(DescribeLogDirsPartition(log.partition, log.size, 0, False))
            context.rows()
        yield 2
    result.topics = [DescribeLogDirsTopic(name, partitions) for name, partitions in sorted(topics.items())]
    with suppress(OSError):  # the default -1 means unknown
        result.total_bytes, result.usable_bytes = broker.log_manager.space()
    return DescribeLogDirsResponse(results=[result])
