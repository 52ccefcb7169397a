"""One member of the transformer group, as a process: `python -m oncelog.demo.transformer`.

Consumes `flights`, enriches each flight into `flights-enriched` (same key, so that an aircraft's flights stay in
order), and sends per-carrier counts of each transaction to `carrier-delays`, all in one transaction with the offsets.
It keeps no state between transactions: whoever sums up `carrier-delays` has the totals, however often it was killed.
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
"""For so long a killed member that is not started again holds up the next owner of its partitions."""


YIELD_EVERY = 50


class Transformer:
    """The work of one transaction; what `Processor` calls."""

    def __init__(self) -> None:
        self._work = Enrichment()

    async def __call__(self, records: list[ConsumerRecord], txn: ProcessorTransaction) -> None:
        counts: dict[str, CarrierDelays] = {}
        for number, record in enumerate(records):
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)  # what is enriched travels while the rest is being enriched
            assert record.value is not None
            flight, value = self._work.enriched_value(record.value)
            txn.send(ENRICHED, value, key=record.key, partition=record.partition)
            tally(counts, flight)
        for carrier, count in counts.items():
            txn.send(CARRIERS, count.encode(), key=carrier.encode())


async def run(bootstrap: str, member: int, session_timeout_ms: int, max_poll_records: int) -> None:
    """Process until SIGTERM; then finish the transaction under way."""
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
    """One member of the demo's transformer group."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(bootstrap, member, session_timeout_ms, max_poll_records))


if __name__ == "__main__":
    main()
