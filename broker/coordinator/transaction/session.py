"""Implements the session of a transactional id: partitions that stay registered between its transactions.

The functions are pure. They determine which partitions a transaction wrote when EndTxn names partitions (`written`),
and whether a batch of an older client opens the next transaction implicitly (`opens`). The transitions in `metadata.py`
change the session.

A session begins with AddPartitionsToTxn(Session), or with an EndTxn in which a client that knows oncelog's wire
extension names the partitions that it wrote. Any InitProducerId, fencing or timeout ends it. Requests can arrive late,
after their transaction has ended:

* Produce v12+ and TxnOffsetCommit v5+ with EndTxn v5: each transaction has its own epoch, so a late request is refused
  because of its epoch.
* Older versions (EndTxn v3-4): the epoch stays the same, and a session survives only commits. A late batch is
  recognised by its sequence number, because sequence numbers continue across transactions. It is refused, unless it is
  in the log and its transaction is not complete: then it is answered as a duplicate. It never opens a transaction.
  After an abort there is no session in which a late batch could open a transaction. A late TxnOffsetCommit or EndTxn
  below v5 contains nothing that identifies its transaction: it can join the next transaction, as it can in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ....protocol.errors import ErrorCode, KafkaError
from .metadata import TransactionMetadata, Written
from .state import TopicPartition, TransactionState


def written(
    metadata: TransactionMetadata,
    named: frozenset[TopicPartition],
    known: Collection[TopicPartition] | None,
    *,
    begins_session: bool,
    deleted: Callable[[frozenset[TopicPartition]], frozenset[TopicPartition]],
) -> Written:
    """Return the partitions that the ending transaction wrote: those that its producer named, and those in `known`.

    `known` contains the partitions that have a batch of the transaction. It is None if the broker restarted during the
    transaction; every registered partition then counts as written. `deleted` selects the deleted partitions, which are
    left out. Raise KafkaError INVALID_REQUEST if a named partition is in neither the transaction nor the session.
    """
    ongoing = metadata.state is TransactionState.ONGOING
    registered = metadata.topic_partitions if ongoing else frozenset()
    outside = named - registered - metadata.session_partitions
    if outside:
        topic, index = min(outside)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"EndTxn names {topic}-{index} as written, but it is in neither the transaction nor the session of"
            f" {metadata.transactional_id!r}. Register it with AddPartitionsToTxn first.",
        )
    partitions = named | (registered if known is None else registered.intersection(known))
    gone = deleted(partitions | metadata.session_partitions)
    return Written(partitions - gone, begins_session, gone)


def opens(metadata: TransactionMetadata, producer_id: int, producer_epoch: int, partition: TopicPartition) -> bool:
    """Whether a batch for this partition opens the next transaction.

    It does if the partition belongs to the session, the producer is the current one, and no transaction is ongoing.
    """
    return (
        partition in metadata.session_partitions
        and metadata.state is not TransactionState.ONGOING
        and (metadata.producer_id, metadata.producer_epoch) == (producer_id, producer_epoch)
    )


def came_late(metadata: TransactionMetadata, producer_id: int, producer_epoch: int) -> bool:
    """Whether a batch of this producer is late, because the session and all transactions of this epoch have ended."""
    return (
        producer_epoch == metadata.ended_session_epoch
        and producer_id == metadata.producer_id
        and (metadata.state is not TransactionState.ONGOING or metadata.producer_epoch != producer_epoch)
    )
