"""Define AllocateProducerIdsRequest and AllocateProducerIdsResponse."""

from __future__ import annotations

from ..schema import Request, Response, int16, int32, int64, request, response


@response(key=67, versions="0", flexible="0+")
class AllocateProducerIdsResponse(Response):
    """The granted block: `producer_id_len` producer ids from `producer_id_start` on. The controller made it durable
    before it sent the response.
    """

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id_start: int = int64("0+")
    producer_id_len: int = int32("0+")


@request(key=67, versions="0", flexible="0+")
class AllocateProducerIdsRequest(Request[AllocateProducerIdsResponse]):
    """Asks the controller for a block of producer ids that no other broker ever hands out (KIP-730). Only brokers send
    it.
    """

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
