"""How transactions read on a terminal: sentences, tables, and what to do where a command refuses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..client.admin import HangingTransaction, ProducerDescription, TransactionDescription
from ..client.values import TopicPartition
from .tables import print_table
from .times import duration, moment
from .transaction_words import STATES, UNKNOWN

if TYPE_CHECKING:
    from ..client.admin import Admin

OFFSETS_TOPIC = "__consumer_offsets"


def sentences(one: TransactionDescription, now_ms: int) -> list[str]:
    """State, since when, what time is left, and whose transaction it is."""
    lines = [f"{one.transactional_id}: {one.state}", f"  {STATES.get(one.state, UNKNOWN)}"]
    if one.started_ms is not None and one.partitions:
        lines.append(f"  begun        {moment(one.started_ms, now_ms)}")
    lines.append(f"  timeout      {duration(one.timeout_ms)}{_left(one, now_ms)}")
    lines.append(f"  producer     id {one.producer_id}, epoch {one.producer_epoch}")
    lines.append(f"  coordinator  broker {one.coordinator}")
    if any(partition.topic == OFFSETS_TOPIC for partition in one.partitions):
        lines.append(f"  It also commits offsets of a consumer group: {OFFSETS_TOPIC} is among its partitions.")
    return lines


def _left(one: TransactionDescription, now_ms: int) -> str:
    deadline_ms = one.deadline_ms
    if deadline_ms is None:
        return ""
    if deadline_ms > now_ms:
        return f", {duration(deadline_ms - now_ms)} left: then the coordinator aborts it"
    return f", over since {duration(now_ms - deadline_ms)}: the coordinator is about to abort it"


async def print_partitions(admin: Admin, one: TransactionDescription, now_ms: int) -> None:
    """Print an open transaction's partitions, with the offsets that matter; see `oncelog txn describe --help`."""
    rows = []
    producers = await admin.describe_producers(one.partitions)
    ends = await admin.list_offsets(dict.fromkeys(one.partitions, -1))
    stable = await admin.list_offsets(dict.fromkeys(one.partitions, -1), isolation_level="read_committed")
    for partition in one.partitions:
        mine = [each for each in producers[partition] if each.producer_id == one.producer_id]
        first = mine[0].transaction_start_offset if mine else None
        last_ms = mine[0].last_timestamp_ms if mine and first is not None else -1
        rows.append(
            [
                partition.topic,
                str(partition.partition),
                "-" if first is None else str(first),
                "-" if last_ms < 0 else moment(last_ms, now_ms),
                str(stable[partition].offset),
                str(ends[partition].offset),
                str(ends[partition].offset - stable[partition].offset),
            ]
        )
    print_table(None, ("topic", ">partition", ">first", "last record", ">stable", ">end", ">waiting"), rows)


def print_hanging(found: Iterable[HangingTransaction], now_ms: int) -> None:
    """Print hanging transactions, one per row."""
    rows = []
    for one in found:
        last_ms = one.producer.last_timestamp_ms
        rows.append(
            [
                one.partition.topic,
                str(one.partition.partition),
                str(one.producer.transaction_start_offset),
                "-" if last_ms < 0 else moment(last_ms, now_ms),
                str(one.producer.producer_id),
                str(one.producer.producer_epoch),
                one.transactional_id or "-",
                one.why.value,
            ]
        )
    columns = ("topic", ">partition", ">first", "last record", ">producer id", ">epoch", "transactional id", "why")
    print_table(None, columns, rows)


def no_such(where: TopicPartition, start_offset: int, known: Iterable[ProducerDescription]) -> str:
    """No transaction is open from that offset on: says which are."""
    starts = sorted(one.transaction_start_offset for one in known if one.transaction_start_offset is not None)
    those = f"open ones begin at {', '.join(map(str, starts))}" if starts else "none is open there"
    return f"no transaction of {where} begins at offset {start_offset}: {those}"


async def its_owner(admin: Admin, where: TopicPartition, producer: ProducerDescription) -> str:
    """Why a transaction is not aborted by hand: whose it is, and what ends it."""
    owners = await admin.list_transactions(producer_ids=[producer.producer_id])
    if not owners:
        return f"the transaction has ended meanwhile: nothing of producer id {producer.producer_id} is open in {where}"
    owner = owners[0]
    return (
        f"that transaction does not hang: transactional id {owner.transactional_id} has it ({owner.state}), and its"
        f" coordinator will end it. To abort it now in all of its partitions: oncelog txn fence"
        f" {owner.transactional_id}. To write a marker into {where} nevertheless: --force"
    )
