"""kafka-python while broker or program are killed; the lines on stdout are in tests/support/foreign_workload.py."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

bootstrap, name, incarnation = sys.argv[1], sys.argv[2], sys.argv[4]
partitions = int(sys.argv[3])
directory = Path(sys.argv[5])
output = threading.Lock()


def say(*words: object) -> None:
    with output:
        print(" ".join(map(str, words)).replace("\n", " "), flush=True)


def asked(file: str) -> bool:
    return (directory / file).exists()


def again_and_again(make: Callable[[], Any]) -> Any:
    """The constructors raise at once where no broker listens; applications of this client try again."""
    for attempt in range(60):
        try:
            return make()
        except KafkaError:
            if attempt == 59:
                raise
            time.sleep(0.5)


def producer(transactional_id: str | None = None) -> KafkaProducer:
    settings = {"transactional_id": transactional_id} if transactional_id else {}
    made = again_and_again(
        lambda: KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=2, **settings)
    )
    if transactional_id:
        made.init_transactions()
    return made


def plain() -> None:
    sender = producer()

    def tell(value: str) -> tuple[Callable[[Any], None], Callable[[BaseException], None]]:
        return (
            lambda metadata: say("A", metadata.partition, metadata.offset, value),
            lambda error: say("N", value, repr(error)),
        )

    n = 0
    while not asked("writers.stop"):
        for partition in range(partitions):
            value = f"{incarnation}-{partition}-{n}"
            acked, refused = tell(value)
            future = sender.send(f"{name}-plain", value.encode(), partition=partition)
            future.add_callback(acked).add_errback(refused)
        n += 1
        time.sleep(0.005)
    sender.flush(60)
    sender.close(10)


def transactions(writer: int) -> None:
    transactional_id = f"{name}-w{writer}"
    sender = producer(transactional_id)
    number = 0
    while not asked("writers.stop"):
        label = f"{transactional_id}/{incarnation}.{number}"
        count = random.randint(1, 5)
        say("T", label, count)
        try:
            sender.begin_transaction()
            for index in range(count):
                partition = (number + index) % partitions
                sender.send(f"{name}-txn", f"{label}/{index}".encode(), partition=partition)
            if random.random() < 0.2:
                if random.random() < 0.5:
                    sender.flush(60)  # an abort throws away what has not left yet
                sender.abort_transaction()
                say("X", label)
            else:
                say("K", label)
                sender.commit_transaction()
                say("C", label)
        except KafkaError as error:
            try:
                sender.abort_transaction()
                say("X", label)
                say("B", "writer", repr(error))
            except KafkaError as second:
                say("U", label)
                say("R", "writer", repr(error), "then", repr(second))
                sender.close(0)
                sender = producer(transactional_id)
        number += 1
    sender.close(10)


def life() -> None:
    """One consumer and one producer until something fails."""
    sender = producer(f"{name}-copy")
    consumer = again_and_again(
        lambda: KafkaConsumer(
            f"{name}-plain",
            bootstrap_servers=bootstrap,
            group_id=f"{name}-copy",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=6000,
            heartbeat_interval_ms=1000,
        )
    )
    try:
        while not asked("all.stop"):
            batches = consumer.poll(timeout_ms=100, max_records=1000)
            if not batches:
                continue
            sender.begin_transaction()
            for records in batches.values():
                for record in records:
                    sender.send(f"{name}-copy", record.value, partition=record.partition)
            offsets = {at: OffsetAndMetadata(records[-1].offset + 1, "", -1) for at, records in batches.items()}
            sender.send_offsets_to_transaction(offsets, consumer.group_metadata())
            sender.commit_transaction()
    finally:
        consumer.close()
        sender.close(0)


def transform() -> None:
    while not asked("all.stop"):
        try:
            life()
        except KafkaError as error:
            say("R", "copy", repr(error))


def start(what: str, job: Callable[[], None]) -> threading.Thread:
    def run() -> None:
        try:
            job()
        except BaseException as error:
            say("F", what, repr(error))
            raise

    thread = threading.Thread(target=run, name=what, daemon=True)
    thread.start()
    return thread


writers = [start("plain", plain), start("w0", lambda: transactions(0)), start("w1", lambda: transactions(1))]
copier = start("copy", transform)
for thread in writers:
    thread.join()
say("D")
copier.join()
say("E")
