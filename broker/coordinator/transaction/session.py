"""The session of a transactional id: partitions that stay registered between its transactions. Pure functions.

Owns which partitions a transaction wrote when EndTxn names some (`written`), and whether a batch of an older client
opens the next transaction by itself (`opens`). What becomes of the session is part of each transition in
`metadata.py`.

A session begins with AddPartitionsToTxn(Session) or with an EndTxn of an extension-aware client that names what was
written; any InitProducerId, fencing and timeout ends it. What can come late for a transaction, and what holds then:

* Produce v12+ and TxnOffsetCommit v5+ with EndTxn v5: each transaction has an epoch of its own, so whatever is late is
  refused by its epoch.
* Below that (EndTxn v3-4) the epoch stays, and a session survives only commits. A late batch is told apart by its
  sequence, which goes on from transaction to transaction: one that the log has is answered as the repetition that it
  is, any other does not follow and is refused, and neither opens a transaction. After an abort there is no session that
  a late batch could open a transaction in. A late TxnOffsetCommit below v5, or a late EndTxn below v5, carries nothing
  that tells its transaction: it can join the next one, as it can in Kafka.
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
    is_deleted: Callable[[TopicPartition], bool],
) -> Written:
    """What the transaction that is about to end wrote: what its producer names and what is `known` to be written.

    `known` is None when nobody has watched the transaction from its beginning (a restart): then every registered
    partition counts. Deleted partitions drop out. Raises KafkaError INVALID_REQUEST when a named partition is in
    neither the transaction nor the session.
    """
    ongoing = metadata.state is TransactionState.ONGOING
    registered = metadata.topic_partitions if ongoing else frozenset()
    outside = named - registered - metadata.session_partitions
    if outside:
        topic, index = min(outside)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{topic}-{index} is named as written, but it is in neither the transaction nor the session of"
            f" {metadata.transactional_id!r}",
        )
    partitions = named | (registered if known is None else registered.intersection(known))
    gone = frozenset(p for p in partitions | metadata.session_partitions if is_deleted(p))
    return Written(partitions - gone, begins_session, gone)


def opens(metadata: TransactionMetadata, producer_id: int, producer_epoch: int, partition: TopicPartition) -> bool:
    """Whether a batch for this partition opens the next transaction without having been registered for it."""
    return (
        partition in metadata.session_partitions
        and metadata.state is not TransactionState.ONGOING
        and (metadata.producer_id, metadata.producer_epoch) == (producer_id, producer_epoch)
    )


def came_late(metadata: TransactionMetadata, producer_id: int, producer_epoch: int) -> bool:
    """Whether the sender's session was ended under that epoch, and nothing of it is open any more."""
    return (
        producer_epoch == metadata.ended_session_epoch
        and producer_id == metadata.producer_id
        and (metadata.state is not TransactionState.ONGOING or metadata.producer_epoch != producer_epoch)
    )
