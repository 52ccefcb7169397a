"""Define DeleteRecordsRequest and DeleteRecordsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, int64, request, response, string, struct


@struct
class DeleteRecordsPartitionResult(Struct):
    partition_index: int = int32("0+")
    low_watermark: int = int64("0+")
    error_code: int = int16("0+")


@struct
class DeleteRecordsTopicResult(Struct):
    name: str = string("0+")
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult, "0+")


@response(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse(Response):
    """The new log start offset (low watermark) of each partition, or -1 with an error."""

    throttle_time_ms: int = int32("0+")
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, "0+")


@struct
class DeleteRecordsPartition(Struct):
    partition_index: int = int32("0+")
    offset: int = int64("0+")


@struct
class DeleteRecordsTopic(Struct):
    name: str = string("0+")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, "0+")


@request(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Request[DeleteRecordsResponse]):
    """Raises the log start offset of partitions, so that older records can no longer be read (KIP-107). An offset of -1
    means the high watermark. The timeout is in ms.
    """

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+")
    timeout_ms: int = int32("0+")
