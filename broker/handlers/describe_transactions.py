"""Handle DescribeTransactions v0: return the state, timeout, producer and partitions of transactional ids."""

from __future__ import annotations

from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.errors import KafkaError
from ...protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ..api.handling import RequestContext, handles
from ..coordinator.state_log import units_of_hashing
from ..coordinator.transaction.coordinator import TransactionCoordinator
from ..scheduling.steps import Steps, ordered

SORTED_PER_UNIT = 10
"""The number of partitions of one topic that are sorted in one unit of work."""


@handles(DescribeTransactionsRequest)
def handle(context: RequestContext, request: DescribeTransactionsRequest) -> Steps[DescribeTransactionsResponse]:
    """Describe each transactional id; an unknown id gets an error in its own entry."""
    coordinator = context.broker.transaction_coordinator
    response = DescribeTransactionsResponse()
    described: dict[str, TransactionState] = {}
    rows: dict[str, int] = {}
    for transactional_id in request.transactional_ids:
        state = described.get(transactional_id)
        if state is None:
            state = described[transactional_id] = yield from _described(context, coordinator, transactional_id)
            rows[transactional_id] = 1 + sum(len(topic.partitions) for topic in state.topics)
        response.transaction_states.append(state)
        yield 4 + context.rows(rows[transactional_id]) + units_of_hashing(transactional_id)
    return response


def _described(
    context: RequestContext, coordinator: TransactionCoordinator, transactional_id: str
) -> Steps[TransactionState]:
    try:
        metadata = coordinator.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    for topic, index in metadata.topic_partitions:
        topics.setdefault(topic, []).append(index)
        yield 1
    names = yield from ordered(topics)
    state = TransactionState(
        transactional_id=transactional_id,
        transaction_state=metadata.state.label,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_timestamp_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
    )
    access = context.access
    for name in names:
        if not access.allows(AclOperation.DESCRIBE, AclResourceType.TOPIC, name, quiet=True):
            yield 1 + access.units
            continue
        state.topics.append(TopicData(name, sorted(topics[name])))
        yield 1 + access.units + len(topics[name]) // SORTED_PER_UNIT
    return state
