"""InitProducerIdRequest and InitProducerIdResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, int16, int32, int64, request, response, string, struct


@response(key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse(Response):
    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
    transactional_id: str | None = string("2+", default=None, nullable="2+", tag=9000, tagged="2+", ignorable=True)


@struct
class AssignedPartitions(Struct):
    topic: str = string("0+")
    partitions: list[int] = array("int32", "0+")


@request(key=22, versions="0-6", flexible="2+", latest_unstable=True)
class InitProducerIdRequest(Request[InitProducerIdResponse]):
    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")
    consumer_group_id: str | None = string("2+", default=None, nullable="2+", tag=9000, tagged="2+", ignorable=True)
    consumer_group_generation: int = int32("2+", default=-1, tag=9001, tagged="2+", ignorable=True)
    assigned_partitions: list[AssignedPartitions] = array(
        AssignedPartitions, "2+", tag=9002, tagged="2+", ignorable=True
    )
