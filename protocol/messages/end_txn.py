"""Define EndTxnRequest and EndTxnResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, int16, int32, int64, request, response, string, struct


@response(key=26, versions="0-5", flexible="3+")
class EndTxnResponse(Response):
    """Confirms that the commit or abort is recorded durably. The markers may be written later. v5 adds the producer id
    and epoch of the next transaction.
    """

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)


@struct
class EndTxnTopic(Struct):
    name: str = string("0+")
    partitions: list[int] = array("int32", "0+")


@request(key=26, versions="0-5", flexible="3+")
class EndTxnRequest(Request[EndTxnResponse]):
    """Commits or aborts the producer's ongoing transaction (KIP-98). v2 may be answered with PRODUCER_FENCED (KIP-588),
    v4 with TRANSACTION_ABORTABLE. A client that sends v5 follows KIP-890: each of its transactions ends with a new
    producer epoch. oncelog's extension adds `topics` (tag 9000): the partitions to which the transaction wrote. Markers
    are then written only to these partitions, and to those that the broker itself has seen the transaction write to.
    """

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")
    topics: list[EndTxnTopic] | None = array(
        EndTxnTopic, "3+", default=None, nullable="3+", tag=9000, tagged="3+", ignorable=True
    )
