"""aiokafka while broker or program are killed; the lines on stdout are those of tests/support/foreign_workload.py."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

bootstrap, name, incarnation = sys.argv[1], sys.argv[2], sys.argv[4]
partitions = int(sys.argv[3])
directory = Path(sys.argv[5])


def say(*words: object) -> None:
    print(" ".join(map(str, words)).replace("\n", " "), flush=True)


def asked(file: str) -> bool:
    return (directory / file).exists()


async def producer(transactional_id: str | None = None) -> AIOKafkaProducer:
    made = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id,
        enable_idempotence=True,
        transaction_timeout_ms=60_000,
        linger_ms=2,
    )
    await again_and_again(made.start)
    return made


async def again_and_again(start: object) -> None:
    """`start` raises at once where no broker listens; applications of this client try again."""
    for attempt in range(60):
        try:
            await start()  # type: ignore[operator]
            return
        except KafkaError:
            if attempt == 59:
                raise
            await asyncio.sleep(0.5)


async def plain() -> None:
    sender = await producer()
    pending: set[asyncio.Task[None]] = set()

    async def tell(told: asyncio.Future[object], value: str) -> None:
        try:
            metadata = await told
            say("A", metadata.partition, metadata.offset, value)  # type: ignore[attr-defined]
        except KafkaError as error:
            say("N", value, repr(error))

    n = 0
    while not asked("writers.stop"):
        for partition in range(partitions):
            value = f"{incarnation}-{partition}-{n}"
            told = await sender.send(f"{name}-plain", value.encode(), partition=partition)
            task = asyncio.create_task(tell(told, value))
            pending.add(task)
            task.add_done_callback(pending.discard)
        n += 1
        await asyncio.sleep(0.003)
    await sender.stop()
    await asyncio.gather(*pending)


async def transactions(writer: int) -> None:
    transactional_id = f"{name}-w{writer}"
    sender = await producer(transactional_id)
    number = 0
    while not asked("writers.stop"):
        label = f"{transactional_id}/{incarnation}.{number}"
        count = random.randint(1, 5)
        say("T", label, count)
        try:
            await sender.begin_transaction()
            for index in range(count):
                partition = (number + index) % partitions
                await sender.send(f"{name}-txn", f"{label}/{index}".encode(), partition=partition)
            if random.random() < 0.2:
                await sender.abort_transaction()
                say("X", label)
            else:
                say("K", label)
                await sender.commit_transaction()
                say("C", label)
        except KafkaError as error:
            try:
                await sender.abort_transaction()
                say("X", label)
                say("B", "writer", repr(error))
            except KafkaError as second:
                say("U", label)
                say("R", "writer", repr(error), "then", repr(second))
                await close(sender)
                sender = await producer(transactional_id)
        number += 1
    await sender.stop()


async def close(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    with contextlib.suppress(KafkaError):
        await client.stop()


async def life() -> None:
    """One consumer and one producer until something fails."""
    sender = await producer(f"{name}-copy")
    consumer = AIOKafkaConsumer(
        f"{name}-plain",
        bootstrap_servers=bootstrap,
        group_id=f"{name}-copy",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
    )
    try:
        await again_and_again(consumer.start)
        while not asked("all.stop"):
            batches = await consumer.getmany(timeout_ms=100, max_records=1000)
            if not batches:
                continue
            async with sender.transaction():
                for records in batches.values():
                    for record in records:
                        await sender.send(f"{name}-copy", record.value, partition=record.partition)
                offsets = {TopicPartition(*at): records[-1].offset + 1 for at, records in batches.items()}
                await sender.send_offsets_to_transaction(offsets, f"{name}-copy")
    finally:
        await close(consumer)
        await close(sender)


async def transform() -> None:
    while not asked("all.stop"):
        try:
            await life()
        except KafkaError as error:
            say("R", "copy", repr(error))


async def main() -> None:
    copier = asyncio.create_task(transform())
    try:
        await asyncio.gather(plain(), transactions(0), transactions(1))
        say("D")
        await copier
        say("E")
    except BaseException as error:
        say("F", "main", repr(error))
        raise


asyncio.run(main())
