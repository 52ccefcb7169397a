"""Handle AlterReplicaLogDirs: accept the directory in which each replica already is (KIP-113).

There is only one data directory, so a replica cannot be moved.
"""

from __future__ import annotations

import os

from ...protocol.errors import ErrorCode
from ...protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ..api.handling import RequestContext, handles
from ..scheduling.steps import Steps


@handles(AlterReplicaLogDirsRequest)
def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> Steps[AlterReplicaLogDirsResponse]:
    broker = context.broker
    path = os.path.abspath(broker.data_dir)
    offline = broker.replica_manager.offline_partitions()
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in request.dirs:
        for item in directory.topics:
            known = broker.metadata.topic(item.name)
            result = results.setdefault(item.name, AlterReplicaLogDirTopicResult(item.name))
            for index in item.partitions:
                if directory.path != path:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                elif known is None or not known.has_partition(index):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif broker.log_manager.failed is not None or index in offline.get(item.name, ()):
                    code = ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    code = ErrorCode.NONE
                result.partitions.append(AlterReplicaLogDirPartitionResult(index, int(code)))
                yield context.rows()
            yield 1
        yield 1
    return AlterReplicaLogDirsResponse(results=list(results.values()))
