"""Define AlterReplicaLogDirsRequest and AlterReplicaLogDirsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, request, response, string, struct


@struct
class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@struct
class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = string("0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult, "0+")


@response(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse(Response):
    """Tells for each partition whether the move has begun. The broker copies the replica after the response."""

    throttle_time_ms: int = int32("0+")
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult, "0+")


@struct
class AlterReplicaLogDirTopic(Struct):
    name: str = string("0+")
    partitions: list[int] = array("int32", "0+")


@struct
class AlterReplicaLogDir(Struct):
    path: str = string("0+")
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic, "0+")


@request(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest(Request[AlterReplicaLogDirsResponse]):
    """Moves replicas of this broker to other log directories, given by absolute path (KIP-113)."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir, "0+")
