"""AddOffsetsToTxnRequest and AddOffsetsToTxnResponse."""

from __future__ import annotations

from ..schema import Request, Response, int16, int32, int64, request, response, string


@response(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse(Response):
    """Says whether the offsets partition belongs to the transaction now; the registration is durable when it does."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")


@request(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    """Registers, in the producer's ongoing transaction, the partition of `__consumer_offsets` that holds a group's
    offsets, before TxnOffsetCommit writes to it (KIP-98). Since v5 of TxnOffsetCommit the group coordinator registers
    it by itself and this request is not needed (KIP-890). v2 may be answered with PRODUCER_FENCED (KIP-588), v4 with
    TRANSACTION_ABORTABLE.
    """

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")
