"""AllocateProducerIdsRequest and AllocateProducerIdsResponse."""

from __future__ import annotations

from ..schema import Request, Response, int16, int32, int64, request, response


@response(key=67, versions="0", flexible="0+")
class AllocateProducerIdsResponse(Response):
    """The block granted: `producer_id_len` ids from `producer_id_start` on. The controller made it durable before it
    answered.
    """

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id_start: int = int64("0+")
    producer_id_len: int = int32("0+")


@request(key=67, versions="0", flexible="0+")
class AllocateProducerIdsRequest(Request[AllocateProducerIdsResponse]):
    """A broker asks the controller for a block of producer ids that no other broker will ever hand out (KIP-730).
    Between brokers only.
    """

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
