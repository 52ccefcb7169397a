"""InitProducerId v0-5: a producer id, and for a transactional id the epoch that fences whoever had it before."""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ..coordinator.transaction.decisions import NO_IDENTITY, ProducerIdentity
from ..coordinator.transaction.state import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ..handling import RequestContext, handles


@handles(InitProducerIdRequest)
async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """v3+ may carry the identity that the producer has (KIP-360): both parts or none."""
    given = ProducerIdentity(request.producer_id, request.producer_epoch)
    if given != NO_IDENTITY and (given.producer_id == NO_PRODUCER_ID or given.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "producer id and epoch are given together, or neither")
    identity = await context.broker.transaction_coordinator.init_producer_id(
        request.transactional_id, request.transaction_timeout_ms, None if given == NO_IDENTITY else given
    )
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)
