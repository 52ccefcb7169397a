"""Handle InitProducerId v0-5: assign a producer id and, for a transactional id, an epoch that fences earlier producers.

With a consumer group (tags 9000-9002, v2+) the initialisation is group-aware: the producer also claims the partitions
that it names, and every conflicting producer of the group is fenced.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ..acls.access import Access
from ..api.handling import RequestContext, handles
from ..api.partition_rows import partitions_of
from ..coordinator.claim import NO_GENERATION
from ..coordinator.claims.initialisation import GroupInitialisation, assigned_prefix
from ..coordinator.transaction.decisions import NO_IDENTITY, ProducerIdentity
from ..coordinator.transaction.state import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ..scheduling.steps import Steps, run_in_slices


@handles(InitProducerIdRequest)
async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Initialise the producer. From v3 on, the request may contain its current id and epoch (KIP-360)."""
    await _authorize(context.access, request)
    sender = ProducerIdentity(request.producer_id, request.producer_epoch)
    if sender != NO_IDENTITY and (sender.producer_id == NO_PRODUCER_ID or sender.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "The request has only one of producer id and producer epoch. Send both or neither.",
        )
    expected = None if sender == NO_IDENTITY else sender
    if request.consumer_group_id is not None:
        return await _for_group(context, request, request.consumer_group_id, expected)
    if request.consumer_group_generation != NO_GENERATION or request.assigned_partitions:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "The request has a generation or partitions, but no consumer group id. Send the group id, too.",
        )
    identity = await context.broker.transaction_coordinator.init_producer_id(
        request.transactional_id, request.transaction_timeout_ms, expected, cause=context
    )
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)


async def _authorize(access: Access, request: InitProducerIdRequest) -> None:
    """Raise KafkaError unless the client may initialise the producer."""
    group_id, transactional_id = request.consumer_group_id, request.transactional_id
    if group_id is not None:
        access.require(AclOperation.READ, AclResourceType.GROUP, group_id)
        if transactional_id is None:
            transactional_id = assigned_prefix(group_id)
    if transactional_id is not None:
        access.require(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id)
    elif not access.allows(AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER, quiet=True) and not (
        await run_in_slices(access.allows_on_any(AclOperation.WRITE, AclResourceType.TOPIC))
    ):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _authorize_topics(access: Access, partitions: Iterable[tuple[str, int]]) -> Steps[None]:
    for topic, _ in partitions:
        access.require(AclOperation.READ, AclResourceType.TOPIC, topic)
        yield 1


async def _for_group(
    context: RequestContext, request: InitProducerIdRequest, group_id: str, expected: ProducerIdentity | None
) -> InitProducerIdResponse:
    partitions = await run_in_slices(
        partitions_of((item.topic, item.partitions) for item in request.assigned_partitions)
    )
    if context.access.is_limited:
        await run_in_slices(_authorize_topics(context.access, partitions))
    transactional_id, identity = await context.broker.group_initialiser.initialise(
        GroupInitialisation(
            group_id,
            request.consumer_group_generation,
            partitions,
            request.transactional_id,
            request.transaction_timeout_ms,
            expected,
        ),
        context,
    )
    return InitProducerIdResponse(
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        transactional_id=transactional_id if request.transactional_id is None else None,
    )
