"""Format transactions for a terminal, as sentences and tables, and explain why a command refuses an abort."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..client.admin import HangingTransaction, ProducerDescription, TransactionDescription
from ..client.values import TopicPartition
from .tables import print_items_table
from .times import duration, moment
from .transaction_states import STATES, UNKNOWN

if TYPE_CHECKING:
    from ..client.admin import Admin

OFFSETS_TOPIC = "__consumer_offsets"


def sentences(transaction: TransactionDescription, now_ms: int) -> list[str]:
    """Return lines that describe the state, times, producer and coordinator of a transactional id."""
    lines = [
        f"{transaction.transactional_id}: {transaction.state}",
        f"  {STATES.get(transaction.state, UNKNOWN)}",
    ]
    if transaction.started_ms is not None and transaction.partitions:
        lines.append(f"  begun        {moment(transaction.started_ms, now_ms)}")
    lines.append(f"  timeout      {duration(transaction.timeout_ms)}{_left(transaction, now_ms)}")
    lines.append(f"  producer     id {transaction.producer_id}, epoch {transaction.producer_epoch}")
    lines.append(f"  coordinator  broker {transaction.coordinator}")
    if any(partition.topic == OFFSETS_TOPIC for partition in transaction.partitions):
        lines.append(f"  It also commits offsets of a consumer group: {OFFSETS_TOPIC} is among its partitions.")
    return lines


def _left(transaction: TransactionDescription, now_ms: int) -> str:
    deadline_ms = transaction.deadline_ms
    if deadline_ms is None:
        return ""
    if deadline_ms > now_ms:
        return f", {duration(deadline_ms - now_ms)} left: then the coordinator aborts it"
    return f", exceeded by {duration(now_ms - deadline_ms)}: the coordinator is about to abort it"


async def partition_items(admin: Admin, transaction: TransactionDescription) -> list[dict[str, Any]]:
    """Return a table item with offsets for each partition of an open transaction.

    `oncelog txn describe --help` explains the offsets.
    """
    if not transaction.partitions:
        return []
    items = []
    producers = await admin.describe_producers(transaction.partitions)
    ends = await admin.list_offsets(dict.fromkeys(transaction.partitions, -1))
    stable = await admin.list_offsets(dict.fromkeys(transaction.partitions, -1), isolation_level="read_committed")
    for partition in transaction.partitions:
        own = next((each for each in producers[partition] if each.producer_id == transaction.producer_id), None)
        first = None if own is None else own.transaction_start_offset
        items.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "first": first,
                "last_record_ms": None if own is None or first is None else _known(own.last_timestamp_ms),
                "stable": stable[partition].offset,
                "end": ends[partition].offset,
                "waiting": ends[partition].offset - stable[partition].offset,
            }
        )
    return items


def print_partitions(items: Iterable[dict[str, Any]], now_ms: int) -> None:
    """Print the partitions of an open transaction as a table."""
    columns = ("topic", ">partition", ">first", "last_record", ">stable", ">end", ">waiting")
    print_items_table(None, columns, [_with_moment(item, now_ms) for item in items])


def hanging_items(transactions: Iterable[HangingTransaction]) -> list[dict[str, Any]]:
    """Return a table item for each hanging transaction."""
    return [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "first": each.producer.transaction_start_offset,
            "last_record_ms": _known(each.producer.last_timestamp_ms),
            "producer_id": each.producer.producer_id,
            "epoch": each.producer.producer_epoch,
            "transactional_id": each.transactional_id,
            "why": each.why.value,
        }
        for each in transactions
    ]


def print_hanging(items: Iterable[dict[str, Any]], now_ms: int) -> None:
    """Print hanging transactions as a table."""
    columns = ("topic", ">partition", ">first", "last_record", ">producer_id", ">epoch", "transactional_id", "why")
    print_items_table(None, columns, [_with_moment(item, now_ms) for item in items])


def _known(timestamp_ms: int) -> int | None:
    return None if timestamp_ms < 0 else timestamp_ms


def _with_moment(item: dict[str, Any], now_ms: int) -> dict[str, Any]:
    last_ms = item["last_record_ms"]
    return {**item, "last_record": None if last_ms is None else moment(last_ms, now_ms)}


def without_transaction(where: TopicPartition, start_offset: int, producers: Iterable[ProducerDescription]) -> str:
    """Return the error for a start offset without a transaction. It lists the start offsets of open transactions."""
    starts = sorted(each.transaction_start_offset for each in producers if each.transaction_start_offset is not None)
    those = f"open ones begin at {', '.join(map(str, starts))}" if starts else "none is open there"
    return f"no transaction of {where} begins at offset {start_offset}: {those}"


async def why_not_by_hand(admin: Admin, where: TopicPartition, producer: ProducerDescription) -> str:
    """Return the reason why `oncelog txn abort` refuses to abort a transaction that does not hang.

    The text names the transactional id that has the producer id, and the command that aborts its transaction. If the
    partition does not have the transaction any more, the text says that it has ended.
    """
    owners = await admin.list_transactions(producer_ids=[producer.producer_id])
    now = (await admin.describe_producers([where]))[where]
    begun = (producer.producer_id, producer.transaction_start_offset)
    if not owners or begun not in [(each.producer_id, each.transaction_start_offset) for each in now]:
        return f"the transaction has ended by now: none begins at offset {producer.transaction_start_offset} in {where}"
    owner = owners[0]
    return (
        f"the transaction does not hang: transactional id {owner.transactional_id} is in state {owner.state}, and its"
        f" coordinator will end it. To abort it now in all of its partitions: oncelog txn fence"
        f" {owner.transactional_id}. To abort it only in {where}, add --force"
    )
