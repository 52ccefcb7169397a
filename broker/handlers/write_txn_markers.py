"""Handle WriteTxnMarkers v1: write the markers with which an operator ends hanging transactions (KIP-664).

The transaction coordinator decides what each marker may do (`coordinator/transaction/external_markers.py`).
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode
from ...protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ..api.handling import Deferred, RequestContext, handles
from ..coordinator.transaction.state import TopicPartition
from ..partitions.markers import Marker
from ..scheduling.steps import Steps

Codes = dict[TopicPartition, ErrorCode]


@handles(WriteTxnMarkersRequest)
def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> Steps[Deferred[list[Codes]]]:
    """Apply the markers; send the response when their effects are durable."""
    markers = yield from _markers(context, request)

    def finish(codes: list[Codes]) -> Steps[WriteTxnMarkersResponse]:
        return _response(markers, codes)

    return Deferred(context.broker.transaction_coordinator.write_external_markers(markers, context), finish)


def _markers(context: RequestContext, request: WriteTxnMarkersRequest) -> Steps[list[Marker]]:
    markers = []
    for requested in request.markers:
        partitions: list[TopicPartition] = []
        markers.append(
            Marker(
                requested.producer_id,
                requested.producer_epoch,
                requested.coordinator_epoch,
                requested.transaction_result,
                partitions,
            )
        )
        yield 1
        for topic in requested.topics:
            context.rows(len(topic.partition_indexes))
            for index in topic.partition_indexes:
                partitions.append((topic.name, index))
                yield 1
    return markers


def _response(markers: list[Marker], results: list[Codes]) -> Steps[WriteTxnMarkersResponse]:
    response = WriteTxnMarkersResponse()
    for marker, codes in zip(markers, results, strict=True):
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        for (name, index), code in codes.items():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = WritableTxnMarkerTopicResult(name, [])
            topic.partitions.append(WritableTxnMarkerPartitionResult(index, code))
            yield 1
        response.markers.append(WritableTxnMarkerResult(marker.producer_id, list(topics.values())))
        yield 1
    return response
