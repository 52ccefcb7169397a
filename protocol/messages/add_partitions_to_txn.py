"""Define AddPartitionsToTxnRequest and AddPartitionsToTxnResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, int16, int32, int64, request, response, string, struct


@struct
class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = int32("0+")
    partition_error_code: int = int16("0+")


@struct
class AddPartitionsToTxnTopicResult(Struct):
    name: str = string("0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult, "0+")


@struct
class AddPartitionsToTxnResult(Struct):
    transactional_id: str = string("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "4+")


@response(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse(Response):
    """The result of each partition, from v4 grouped by transaction. All partitions of a transaction are registered, or
    none: if one partition fails, the other ones get OPERATION_NOT_ATTEMPTED.
    """

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "0-3")


@struct
class AddPartitionsToTxnTopic(Struct):
    name: str = string("0+")
    partitions: list[int] = array("int32", "0+")


@struct
class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = string("4+")
    producer_id: int = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+")
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+")
    session: bool = boolean("4+", tag=9000, tagged="4+", ignorable=True)


@request(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    """Registers partitions in a producer's transaction before the producer writes to them (KIP-98). The first partition
    begins the transaction. Up to v3 the request is about one transaction, in the `v3_and_below_` fields. From v4, which
    brokers use, the request has several transactions. With `verify_only`, it registers nothing, but asks whether the
    partitions are registered (KIP-890). v2 may be answered with PRODUCER_FENCED, v5 with TRANSACTION_ABORTABLE.
    oncelog's extension adds `session` (tag 9000), which keeps the partitions registered after this transaction.
    """

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")
    session: bool = boolean("3", tag=9000, tagged="3", ignorable=True)
