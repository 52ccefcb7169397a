"""Handle DescribeProducers v0: return the producers in a partition's log and their open transactions.

A partition that the request repeats is described once. For a partition that has never been written to, no producers are
returned, and no log is created.
"""

from __future__ import annotations

from ...protocol.errors import KafkaError
from ...protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ..api.handling import RequestContext, handles
from ..scheduling.steps import Steps


@handles(DescribeProducersRequest)
def handle(context: RequestContext, request: DescribeProducersRequest) -> Steps[DescribeProducersResponse]:
    """Describe each partition; an unknown partition gets an error in its own entry."""
    topics: dict[str, dict[int, PartitionResponse]] = {}
    for topic in request.topics:
        answers = topics.setdefault(topic.name, {})
        for index in topic.partition_indexes:
            if index not in answers:
                answers[index] = yield from _partition(context, topic.name, index)
            yield 1
        yield 1
    response = DescribeProducersResponse()
    for name, answers in topics.items():
        response.topics.append(TopicResponse(name, list(answers.values())))
        yield 1
    return response


def _partition(context: RequestContext, topic: str, index: int) -> Steps[PartitionResponse]:
    answer = PartitionResponse(index)
    yield 2 * context.rows()
    try:
        context.broker.replica_manager.partition(topic, index)
        log = context.broker.log_manager.get(topic, index)
    except KafkaError as error:
        return PartitionResponse(index, int(error.code), error.message)
    # A copy, because producers may change at each pause.
    entries = list(log.producers.entries()) if log is not None else []
    for entry in entries:
        yield context.rows()
        answer.active_producers.append(
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_txn_first_offset,
            )
        )
    return answer
