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
from ..coordinator.transaction.state import STATE_BY_LABEL
from ..scheduling.steps import Steps, distinct


@handles(ListTransactionsRequest)
def handle(context: RequestContext, request: ListTransactionsRequest) -> Steps[ListTransactionsResponse]:
    """List the transactional ids that match. The response also names the states in the request that do not exist."""
    states = yield from distinct(request.state_filters)
    response = ListTransactionsResponse()
    for name in states:
        if name not in STATE_BY_LABEL:
            response.unknown_state_filters.append(name)
        yield 1
    wanted = TransactionFilter(
        states=states,
        producer_ids=(yield from distinct(request.producer_id_filters)),
        duration_ms=request.duration_filter,
        transactional_id_pattern=request.transactional_id_pattern,
    )
    for metadata in (yield from context.broker.transaction_coordinator.list(wanted)):
        yield 1 + context.access.units
        name = metadata.transactional_id
        if not context.access.allows(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, name, quiet=True):
            continue
        response.transaction_states.append(
            TransactionState(metadata.transactional_id, metadata.producer_id, metadata.state.label)
        )
        yield context.rows()
    return response
