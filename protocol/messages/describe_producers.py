"""Define DescribeProducersRequest and DescribeProducersResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, int64, request, response, string, struct


@struct
class ProducerState(Struct):
    producer_id: int = int64("0+")
    producer_epoch: int = int32("0+")
    last_sequence: int = int32("0+", default=-1)
    last_timestamp: int = int64("0+", default=-1)
    coordinator_epoch: int = int32("0+")
    current_txn_start_offset: int = int64("0+", default=-1)


@struct
class PartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    active_producers: list[ProducerState] = array(ProducerState, "0+")


@struct
class TopicResponse(Struct):
    name: str = string("0+")
    partitions: list[PartitionResponse] = array(PartitionResponse, "0+")


@response(key=61, versions="0", flexible="0+")
class DescribeProducersResponse(Response):
    """The epoch, last sequence and last timestamp (ms since the epoch) of each producer, and the offset at which its
    open transaction starts, or -1 if none is open.
    """

    throttle_time_ms: int = int32("0+")
    topics: list[TopicResponse] = array(TopicResponse, "0+")


@struct
class TopicRequest(Struct):
    name: str = string("0+")
    partition_indexes: list[int] = array("int32", "0+")


@request(key=61, versions="0", flexible="0+")
class DescribeProducersRequest(Request[DescribeProducersResponse]):
    """Asks a partition's leader for the producers that it knows (KIP-664), to find hanging transactions."""

    topics: list[TopicRequest] = array(TopicRequest, "0+")
