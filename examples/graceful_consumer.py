"""A consumer that stops cleanly: SIGTERM ends it between two records, and no record is lost or handled twice.

Shows   A Consumer that is in a group and commits offsets after the work, `wakeup()` from a signal handler, and the
        `async with` block. At its end the consumer leaves the group at once, so that other members need not wait for a
        session timeout.
Run     oncelog serve --data-dir data --listen 127.0.0.1:9092
        oncelog topic create parcels --partitions 3
        python examples/graceful_consumer.py       # start up to one consumer per partition
        seq 100 | oncelog produce parcels
        kill -TERM %1                              # or Ctrl-C

The work is done at least once: after a crash, but not after SIGTERM, the last batch is handled again. If the results
are written to topics, use etl.py instead: after a crash, its transaction for that batch is aborted.
"""

from __future__ import annotations

import asyncio
import os
import signal

from oncelog import CommitFailedError, Consumer, ConsumerRecord, RebalanceInProgressError, TopicPartition

BOOTSTRAP = os.environ.get("ONCELOG_BOOTSTRAP", "127.0.0.1:9092")


async def handle(record: ConsumerRecord) -> None:
    """Do the work for one record; replace this."""
    print((record.value or b"").decode(), flush=True)


async def main() -> None:
    """Handle records until SIGTERM or Ctrl-C."""
    async with Consumer(
        bootstrap_servers=BOOTSTRAP,
        topics=["parcels"],
        group_id="delivery",
        auto_offset_reset="earliest",
        enable_auto_commit=False,  # commit the offsets of handled records, not of fetched ones
        max_poll_records=100,  # this many records must be handled within max.poll.interval.ms, five minutes
    ) as consumer:
        stopping = False

        def stop() -> None:
            nonlocal stopping
            stopping = True
            consumer.wakeup()  # interrupts a waiting poll

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)

        while not stopping:
            handled: dict[TopicPartition, int] = {}
            for record in await consumer.poll(timeout_ms=60_000):
                await handle(record)
                handled[record.topic_partition] = record.offset + 1  # the offset of the next record to read
                if stopping:
                    break
            try:
                await consumer.commit(handled)
            except (CommitFailedError, RebalanceInProgressError) as error:
                print(f"another member may handle these records again: {error}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
