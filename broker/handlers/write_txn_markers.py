"""WriteTxnMarkers v1: an operator's markers, which may end a hanging transaction (KIP-664).

The transaction coordinator decides what each marker may do: `coordinator/transaction/external_markers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.errors import ErrorCode
from ...protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ..coordinator.transaction.state import TopicPartition
from ..handling import Deferred, RequestContext, handles
from ..markers import Marker


@handles(WriteTxnMarkersRequest)
def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> Deferred[list[dict[TopicPartition, ErrorCode]]]:
    """Apply the markers; the response is sent when their effects are durable."""
    markers = [
        Marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes],
        )
        for marker in request.markers
    ]

    def finish(codes: list[dict[TopicPartition, ErrorCode]]) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            [
                WritableTxnMarkerResult(marker.producer_id, _topics(results))
                for marker, results in zip(markers, codes, strict=True)
            ]
        )

    return Deferred(context.broker.transaction_coordinator.write_external_markers(markers, context), finish)


def _topics(codes: Mapping[TopicPartition, ErrorCode]) -> list[WritableTxnMarkerTopicResult]:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(WritableTxnMarkerPartitionResult(index, code))
    return [WritableTxnMarkerTopicResult(name, results) for name, results in topics.items()]
