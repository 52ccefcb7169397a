"""Run a member of the transformer group as a process: `python -m oncelog.demo.transformer`.

The member reads `flights`, and writes each enriched flight to `flights-enriched` with the same key, so that an
aircraft's flights stay in order. It writes the counts per carrier of each transaction to `carrier-delays`. Records and
offsets are committed in one transaction. The member keeps no state between transactions. The sum of all records in
`carrier-delays` is the total, no matter how often members are killed.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import click

from .flights import CarrierDelays, Enrichment, tally
from .topics import CARRIERS, ENRICHED, FLIGHTS, GROUP

if TYPE_CHECKING:
    from ..client.consumer import ConsumerRecord
    from ..client.processor import ProcessorTransaction

TRANSACTION_TIMEOUT_MS = 10_000
"""Longest time that the transaction of a killed member blocks the next owner of its partitions, in milliseconds."""


YIELD_EVERY = 50


class Transformer:
    """The callback of `Processor`, which does the work of a transaction."""

    def __init__(self) -> None:
        self._work = Enrichment()

    async def __call__(self, records: list[ConsumerRecord], txn: ProcessorTransaction) -> None:
        counts: dict[str, CarrierDelays] = {}
        for number, record in enumerate(records):
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)  # sends the enriched flights while the rest is enriched
            assert record.value is not None
            flight, value = self._work.enriched_value(record.value)
            txn.send(ENRICHED, value, key=record.key, partition=record.partition)
            tally(counts, flight)
        for carrier, count in counts.items():
            txn.send(CARRIERS, count.encode(), key=carrier.encode())


async def run(bootstrap: str, member: int, session_timeout_ms: int, max_poll_records: int) -> None:
    """Process flights until SIGTERM or SIGINT, then finish the current transaction."""
    from ..client.processor import Processor

    async with Processor(
        bootstrap_servers=bootstrap,
        topics=[FLIGHTS],
        group_id=GROUP,
        transactional_id=f"{GROUP}-{member}",
        process=Transformer(),
        max_batch_records=max_poll_records,
        max_batch_ms=50,
        consumer_settings={
            "auto_offset_reset": "earliest",
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": session_timeout_ms // 4,
        },
        producer_settings={"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS, "compression_type": "lz4"},
    ) as processor:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, processor.stop)
        await processor.run()


@click.command()
@click.option("--bootstrap", required=True)
@click.option("--member", type=int, required=True)
@click.option("--session-timeout-ms", type=int, default=6000)
@click.option("--max-poll-records", type=int, default=2000)
def main(bootstrap: str, member: int, session_timeout_ms: int, max_poll_records: int) -> None:
    """Run a member of the demo's transformer group."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(bootstrap, member, session_timeout_ms, max_poll_records))


if __name__ == "__main__":
    main()
