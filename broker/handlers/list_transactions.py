"""Handle ListTransactions v0-2: list transactional ids by state, producer id, duration (v1) and pattern (v2)."""

from __future__ import annotations

from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from ..api.handling import RequestContext, handles
from ..coordinator.transaction.queries import TransactionFilter
from ..scheduling.steps import Steps


@handles(ListTransactionsRequest)
def handle(context: RequestContext, request: ListTransactionsRequest) -> Steps[ListTransactionsResponse]:
    """List the transactional ids that match; the response also contains the unknown names of states."""
    wanted = TransactionFilter(
        states=request.state_filters,
        producer_ids=frozenset(request.producer_id_filters),
        duration_ms=request.duration_filter,
        transactional_id_pattern=request.transactional_id_pattern,
    )
    response = ListTransactionsResponse(unknown_state_filters=wanted.unknown_states)
    for metadata in (yield from context.broker.transaction_coordinator.list(wanted)):
        yield 1
        name = metadata.transactional_id
        if not context.access.allows(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, name, quiet=True):
            continue
        response.transaction_states.append(
            TransactionState(metadata.transactional_id, metadata.producer_id, metadata.state.label)
        )
        yield context.rows()
    return response
