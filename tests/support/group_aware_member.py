"""Run a group-aware member, the bundled Processor, as a process: `python -m support.group_aware_member …`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal

from oncelog import ConsumerRecord, KafkaError, Processor, ProcessorTransaction


async def live(options: argparse.Namespace) -> None:
    def copy(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        for record in records:
            headers = [("member", options.name.encode())]
            transaction.send(options.sink, record.value, partition=record.partition, headers=headers)

    async with Processor(
        bootstrap_servers=options.bootstrap,
        topics=[options.source],
        group_id=options.group,
        application_id=options.application,
        transactional_id=f"{options.application}-{options.name}",
        process=copy,
        max_batch_records=options.batch,
        max_batch_ms=20,
        consumer_settings={
            "session_timeout_ms": options.session_timeout_ms,
            "heartbeat_interval_ms": options.session_timeout_ms // 20,
            "partition_assignment_strategy": options.strategy,
        },
        producer_settings={"transaction_timeout_ms": options.transaction_timeout_ms},
    ) as processor:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, processor.stop)
        await processor.run()


async def run(options: argparse.Namespace) -> None:
    while True:
        try:
            return await live(options)
        except KafkaError as error:  # the processor was fenced too often, or the broker was away for too long
            logging.exception("starting again after %s", error)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "application", "source", "sink", "strategy", "name"):
        parser.add_argument(f"--{name}", required=True)
    for name, default in (("session-timeout-ms", 6000), ("transaction-timeout-ms", 6000), ("batch", 500)):
        parser.add_argument(f"--{name}", type=int, default=default)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
