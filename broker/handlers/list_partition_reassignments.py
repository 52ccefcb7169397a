"""Handle ListPartitionReassignments: there is one broker, so no partition is ever moved to another one (KIP-455)."""

from __future__ import annotations

from ...protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ..api.handling import RequestContext, handles


@handles(ListPartitionReassignmentsRequest)
def handle(context: RequestContext, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
