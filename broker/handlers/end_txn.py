"""EndTxn v0-5: commit or abort. Answered when the decision is durable; v5 hands out the next epoch (KIP-890)."""

from __future__ import annotations

from ...protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ..coordinator.transaction.state import TransactionVersion
from ..handling import RequestContext, handles


@handles(EndTxnRequest)
async def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Version 5 says that the client ends transactions the KIP-890 way, as only one that saw the feature does."""
    identity = await context.broker.transaction_coordinator.end_txn(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        TransactionVersion.TV_2 if context.api_version >= 5 else TransactionVersion.TV_0,
    )
    return EndTxnResponse(producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)
