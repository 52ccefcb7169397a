"""ETL: read JSON records, clean them, write the result to another topic. Every input record counts exactly once.

Shows   Processor with a transform that filters, converts and may fail. A record that the transform cannot convert goes
        to a dead-letter topic, in the same transaction as its offset. SIGTERM finishes the current transaction.
Run     oncelog serve --data-dir data --listen 127.0.0.1:9092
        oncelog topic create raw-orders --partitions 3
        python examples/etl.py worker-0            # start each worker with a different name
        echo '{"customer": "Alice ", "price": "12.60"}' | oncelog produce raw-orders
        oncelog consume orders --from-beginning
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from decimal import Decimal

from oncelog import ConsumerRecord, OutputRecord, Processor

BOOTSTRAP = os.environ.get("ONCELOG_BOOTSTRAP", "127.0.0.1:9092")


def clean(record: ConsumerRecord) -> Iterator[OutputRecord]:
    """Yield one clean order for a raw order, and nothing for a test order.

    After an abort this function is called again with the same record, so it must not have side effects. An exception
    sends the record to the dead-letter topic, with the exception's type and message in the headers.
    """
    raw = json.loads(record.value or b"")
    if raw.get("test"):
        return
    customer = raw["customer"].strip().lower()
    cents = int(Decimal(raw["price"]) * 100)
    if cents < 0:
        raise ValueError(f"negative price {raw['price']}")
    yield OutputRecord("orders", json.dumps({"customer": customer, "cents": cents}).encode(), key=customer.encode())


async def main(worker: str) -> None:
    """Process records until SIGTERM or Ctrl-C."""
    async with Processor(
        bootstrap_servers=BOOTSTRAP,
        topics=["raw-orders"],
        group_id="clean-orders",
        transactional_id=f"clean-orders-{worker}",  # unique for each worker, and the same after a restart
        consumer_settings={"group.instance.id": worker},  # a restarted worker gets its partitions back at once
        transform=clean,
        dead_letter_topic="raw-orders-dead",
    ) as processor:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, processor.stop)
        await processor.run()
        metrics = processor.metrics
        print(f"{metrics.records_in} in, {metrics.records_out} out, {metrics.dead_letters} dead letters")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "worker-0"))
