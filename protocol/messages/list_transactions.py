"""Define ListTransactionsRequest and ListTransactionsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, int64, request, response, string, struct


@struct
class TransactionState(Struct):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    transaction_state: str = string("0+")


@response(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse(Response):
    """The transactional ids with producer id and state, and the requested states that the broker does not know."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    unknown_state_filters: list[str] = array("string", "0+")
    transaction_states: list[TransactionState] = array(TransactionState, "0+")


@request(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest(Request[ListTransactionsResponse]):
    """Asks a coordinator for its transactional ids, filtered by state and producer id (KIP-664). v1 can filter by
    duration in ms (KIP-994), v2 by a regular expression on the transactional id (KIP-1152).
    """

    state_filters: list[str] = array("string", "0+")
    producer_id_filters: list[int] = array("int64", "0+")
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", default=None, nullable="2+")
