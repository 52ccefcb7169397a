"""Define DescribeTransactionsRequest and DescribeTransactionsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int16, int32, int64, request, response, string, struct


@struct
class TopicData(Struct):
    topic: str = string("0+")
    partitions: list[int] = array("int32", "0+")


@struct
class TransactionState(Struct):
    error_code: int = int16("0+")
    transactional_id: str = string("0+")
    transaction_state: str = string("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_start_time_ms: int = int64("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    topics: list[TopicData] = array(TopicData, "0+")


@response(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse(Response):
    """The state of each transactional id: name of the state, producer id and epoch, timeout in ms, start in ms since
    the epoch, and the partitions of the ongoing transaction.
    """

    throttle_time_ms: int = int32("0+")
    transaction_states: list[TransactionState] = array(TransactionState, "0+")


@request(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest(Request[DescribeTransactionsResponse]):
    """Asks the coordinator of each transactional id for its state (KIP-664)."""

    transactional_ids: list[str] = array("string", "0+")
