"""Define WriteTxnMarkersRequest and WriteTxnMarkersResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, int16, int32, int64, request, response, string, struct


@struct
class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@struct
class WritableTxnMarkerTopicResult(Struct):
    name: str = string("0+")
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult, "0+")


@struct
class WritableTxnMarkerResult(Struct):
    producer_id: int = int64("0+")
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult, "0+")


@response(key=27, versions="1", flexible="1+")
class WriteTxnMarkersResponse(Response):
    """The result of each producer and partition. NONE means that the marker is durable."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult, "0+")


@struct
class WritableTxnMarkerTopic(Struct):
    name: str = string("0+")
    partition_indexes: list[int] = array("int32", "0+")


@struct
class WritableTxnMarker(Struct):
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    transaction_result: bool = boolean("0+")
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic, "0+")
    coordinator_epoch: int = int32("0+")


@request(key=27, versions="1", flexible="1+")
class WriteTxnMarkersRequest(Request[WriteTxnMarkersResponse]):
    """Tells partition leaders to end transactions with commit or abort markers (KIP-98). Brokers send it, and so do
    tools that end hanging transactions (KIP-664).
    """

    markers: list[WritableTxnMarker] = array(WritableTxnMarker, "0+")
