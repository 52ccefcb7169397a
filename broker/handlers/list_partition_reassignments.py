"""Handle ListPartitionReassignments: return an empty list, because one broker cannot move a partition (KIP-455)."""

from __future__ import annotations

from ...protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ..api.handling import RequestContext, handles


@handles(ListPartitionReassignmentsRequest)
def handle(context: RequestContext, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
