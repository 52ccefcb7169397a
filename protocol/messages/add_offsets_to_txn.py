"""Define AddOffsetsToTxnRequest and AddOffsetsToTxnResponse."""

from __future__ import annotations

from ..schema import Request, Response, int16, int32, int64, request, response, string


@response(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse(Response):
    """Tells whether the offsets partition now belongs to the transaction. If so, the registration is durable."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")


@request(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    """Adds the partition of `__consumer_offsets` that stores a group's offsets to the producer's ongoing transaction,
    before TxnOffsetCommit writes to that partition (KIP-98). Clients of TxnOffsetCommit v5 do not need this request,
    because the group coordinator registers the partition (KIP-890). v2 may be answered with PRODUCER_FENCED (KIP-588),
    v4 with TRANSACTION_ABORTABLE.
    """

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")
