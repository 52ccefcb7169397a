"""Define InitProducerIdRequest and InitProducerIdResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, int16, int32, int64, request, response, string, struct


@response(key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse(Response):
    """The producer id and epoch to use from now on. oncelog's extension adds `transactional_id` (tag 9000): the id that
    the broker assigned to a request that named a group but no transactional id.
    """

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
    """Gives a producer its id (KIP-98). With a transactional id, the broker also bumps the epoch, which fences every
    older producer of that id, and aborts the open transaction. v3 adds the current producer id and epoch, so that a
    producer can bump its own epoch after an error (KIP-360). v4 may be answered with PRODUCER_FENCED (KIP-588). v6,
    which is unstable, is for two-phase commit (KIP-939). The timeout is in ms. oncelog's extension adds, in tags
    from 9000 on, the consumer group, the generation and the partitions for which the producer works.
    """

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
