"""A consumer of objects: orders arrive as dataclasses, and records that are not orders are set aside.

Shows   A Consumer with deserializers, so that type checkers know the fields of `record.value`. A record that cannot be
        deserialized is written to another topic as it was read, and then skipped.
Run     oncelog serve --data-dir data --listen 127.0.0.1:9092
        oncelog topic create orders --partitions 3
        python examples/typed_consumer.py
        echo '{"item": "apples", "count": 42}' | oncelog produce orders
        echo 'no order' | oncelog produce orders
        oncelog consume orders-unreadable --from-beginning --max-messages 1

After a crash, the last records are packed or set aside again. If that must not happen, use etl.py instead.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from oncelog import Consumer, ConsumerRecord, DataclassSerde, DeserializationError, Producer, StringSerde

BOOTSTRAP = os.environ.get("ONCELOG_BOOTSTRAP", "127.0.0.1:9092")


@dataclass
class Order:
    """The value of a record."""

    item: str
    count: int
    note: str | None = None  # fields with a default may be missing, and unknown fields are ignored


def pack(record: ConsumerRecord[str, Order]) -> None:
    """Do the work for one order; replace this."""
    order = record.value
    if order is None:
        print(f"order {record.key} is cancelled", flush=True)
    else:
        print(f"order {record.key}: {order.count} {order.item}", flush=True)


async def set_aside(error: DeserializationError, producer: Producer) -> None:
    """Write a record that cannot be read to another topic, and wait until it is there."""
    record = error.record  # its key and value are bytes
    headers = [*record.headers, ("error", str(error).encode())]
    await producer.send("orders-unreadable", record.value, key=record.key, headers=headers)
    print(f"set aside: {error.partition} at offset {error.offset}", flush=True)


async def main() -> None:
    """Pack orders until the program is ended."""
    async with (
        Producer(bootstrap_servers=BOOTSTRAP) as producer,
        Consumer(
            bootstrap_servers=BOOTSTRAP,
            topics=["orders"],
            group_id="packing",
            auto_offset_reset="earliest",
            key_deserializer=StringSerde(),
            value_deserializer=DataclassSerde(Order),
        ) as consumer,
    ):
        while True:
            try:
                async for record in consumer:
                    pack(record)
            except DeserializationError as error:
                await set_aside(error, producer)
                consumer.seek(error.partition, error.next_offset)


if __name__ == "__main__":
    asyncio.run(main())
