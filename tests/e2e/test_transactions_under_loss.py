"""Transactions while requests and answers are lost at random: every commit is whole, every abort is nothing.

With sessions, registered beforehand or not, offsets beside the records, and over a proxy that breaks any API of the
transaction before or after the broker has served it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from oncelog import (
    AbortableError,
    CommitUnknownError,
    ConsumerGroupMetadata,
    KafkaTimeoutError,
    Producer,
    ProducerFencedError,
)
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from oncelog.protocol.schema import Request
from support.proxy import FaultProxy
from support.reading import committed_offset, make_topic, values

Fresh = Callable[[str], str]
APIS: list[type[Request[Any]]] = [
    ProduceRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
    AddPartitionsToTxnRequest,
    InitProducerIdRequest,
]
PARTITIONS, TRANSACTIONS = 3, 40


class Writer:
    """Writes numbered transactions, and knows of each whether it counts."""

    def __init__(self, seed: int, proxy: FaultProxy, producer: Producer, topic: str, group: str) -> None:
        self.random = random.Random(seed)
        self.proxy = proxy
        self.producer = producer
        self.topic = topic
        self.group = ConsumerGroupMetadata(group)
        self.committed: list[bytes] = []
        self.offset = -1001

    def break_something(self) -> None:
        self.proxy.clear_faults()
        for _ in range(self.random.randrange(4)):
            api = self.random.choice(APIS)
            lose = self.random.choice([self.proxy.break_before, self.proxy.break_after])
            lose(api, times=self.random.randint(1, 2), skip=self.random.randrange(3))

    async def transact(self, number: int) -> None:
        choose, producer, topic = self.random, self.producer, self.topic
        bound = [(topic, index) for index in range(PARTITIONS)] if choose.random() < 0.4 else None
        records = [(b"%d-%d" % (number, one), choose.randrange(PARTITIONS)) for one in range(choose.randrange(6))]
        await producer.begin_transaction(bound)
        for value, partition in records:
            producer.send(topic, value, partition=partition)
            if choose.random() < 0.3:
                await asyncio.sleep(0)
        with_offsets = choose.random() < 0.5
        if with_offsets:
            await producer.send_offsets({(topic, 0): number}, self.group)
        if choose.random() < 0.3:
            await asyncio.sleep(choose.choice([0, 0.001, 0.01]))
            await producer.abort_transaction()
            return
        await self.commit()
        self.committed += [value for value, _ in records]
        if with_offsets:
            self.offset = number

    async def commit(self) -> None:
        while True:
            try:
                return await self.producer.commit_transaction()
            except CommitUnknownError as error:
                if not error.can_ask_again:  # nobody else uses this transactional id: it must be possible
                    raise


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_lost(bootstrap: str, fresh_name: Fresh, seed: int, version: int) -> None:
    topic, group = make_topic(bootstrap, fresh_name("topic"), PARTITIONS), fresh_name("group")
    async with FaultProxy(bootstrap) as proxy:
        proxy.features["transaction.version"] = version
        async with Producer(
            bootstrap_servers=proxy.address,
            transactional_id=fresh_name("txn"),
            batch_size=40,
            linger_ms=0,
            retry_backoff_ms=1,
            retry_backoff_max_ms=5,
            reconnect_backoff_ms=1,
            reconnect_backoff_max_ms=5,
        ) as producer:
            writer = Writer(seed, proxy, producer, topic, group)
            await producer.init_transactions()
            for number in range(TRANSACTIONS):
                writer.break_something()
                try:
                    await writer.transact(number)
                except (AbortableError, KafkaTimeoutError):
                    await producer.abort_transaction()
                except ProducerFencedError:
                    await producer.init_transactions()
            proxy.clear_faults()
    assert sorted(values(bootstrap, topic)) == sorted(writer.committed)
    assert committed_offset(bootstrap, group, topic, 0) == writer.offset
    assert len(writer.committed) > TRANSACTIONS / 2, "too little came through to tell anything"
