"""AddOffsetsToTxnRequest and AddOffsetsToTxnResponse."""

from __future__ import annotations

from ..schema import Request, Response, int16, int32, int64, request, response, string


@response(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")


@request(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")
