"""Define `oncelog txn hanging` and `abort`: find transactions that no coordinator knows, and abort them."""

from __future__ import annotations

import time
from typing import Final

import click

from .bootstrap import bootstrap_option, connect_admin, run
from .confirmation import confirm, yes_option
from .json_output import json_option, print_json, report
from .parameters import MAX_INT64, Number, Seconds

LONGEST_S: Final = 900
"""Kafka's default of transaction.max.timeout.ms, in seconds. A coordinator aborts longer transactions."""


@click.command(short_help="Find transactions that no coordinator will ever end.")
@click.option("--topic", help="Look at this topic only.  [default: all topics, including internal ones]")
@click.option("--partition", type=Number(), help="Look at this partition of --topic only.")
@click.option(
    "--older-than", type=Seconds(), default=LONGEST_S, show_default=True, metavar="SECONDS",
    help="Leave out transactions whose last record is younger than this. Use the brokers' transaction.max.timeout.ms,"
    " in seconds.",
)  # fmt: skip
@json_option
@bootstrap_option
def hanging(topic: str | None, partition: int | None, older_than: float, as_json: bool, bootstrap: str) -> int:
    """Find hanging transactions: those that are open in a partition, but that no coordinator knows.

    No coordinator ever ends a hanging transaction, so read_committed consumers cannot read the partition from the
    transaction's first record on. A hanging transaction is caused by a batch that reached a partition after its
    transaction had ended, on a broker that accepts such batches. The exit code is 1 if a transaction hangs.
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")

    async def work() -> int:
        from .transaction_tables import hanging_items, print_hanging

        async with connect_admin(bootstrap) as admin:
            where = None
            if topic is not None:
                metadata = (await admin.describe_topics([topic]))[topic]
                where = [(topic, each.index) for each in metadata.partitions if partition in (None, each.index)]
                if not where:
                    raise click.ClickException(f"topic {topic} has no partition {partition}")
            transactions = await admin.find_hanging_transactions(where, older_than_ms=round(older_than * 1000))
        items = hanging_items(transactions)
        if as_json:
            print_json(items)
        elif not transactions:
            click.echo("No transaction hangs.")
        else:
            print_hanging(items, int(time.time() * 1000))
            click.echo("To abort a transaction, once no producer uses it any more:")
            for transaction in transactions:
                click.echo(
                    f"  oncelog txn abort {transaction.partition.topic} {transaction.partition.partition}"
                    f" --start-offset {transaction.producer.transaction_start_offset}"
                )
        return 1 if transactions else 0

    return run(work())


@click.command(short_help="Abort a hanging transaction in a partition.")
@click.argument("topic")
@click.argument("partition", type=Number())
@click.option(
    "--start-offset", type=Number(0, MAX_INT64), required=True, metavar="OFFSET",
    help="First offset of the transaction, as printed by `oncelog txn hanging`.",
)  # fmt: skip
@click.option(
    "--force",
    is_flag=True,
    help="Abort even if a coordinator knows the transaction, which then stays open in its other partitions.",
)
@yes_option
@json_option
@bootstrap_option
def abort(topic: str, partition: int, start_offset: int, force: bool, yes: bool, as_json: bool, bootstrap: str) -> None:
    """Abort the hanging transaction that begins at OFFSET in PARTITION of TOPIC, by writing an abort marker.

    The marker is written to that partition only, without the coordinator. The command refuses to abort a transaction
    that a coordinator knows. Use `oncelog txn fence` to abort such a transaction in all of its partitions.

    \b
    oncelog txn hanging
    oncelog txn abort orders 0 --start-offset 42
    """

    async def work() -> None:
        from ..client.admin import AbortTransactionSpec
        from ..client.values import TopicPartition
        from .transaction_tables import why_not_by_hand, without_transaction

        where = TopicPartition(topic, partition)
        async with connect_admin(bootstrap) as admin:
            producers = (await admin.describe_producers([where]))[where]
            matching = [each for each in producers if each.transaction_start_offset == start_offset]
            if not matching:
                raise click.ClickException(without_transaction(where, start_offset, producers))
            (producer,) = matching
            if not force:
                transactions = await admin.find_hanging_transactions([where], older_than_ms=0)
                if not any(each.producer.producer_id == producer.producer_id for each in transactions):
                    raise click.ClickException(await why_not_by_hand(admin, where, producer))
            confirm(f"Abort the open transaction of producer id {producer.producer_id} in {where}?", yes=yes)
            await admin.abort_transaction(AbortTransactionSpec.of(where, producer))
        sentence = (
            f"Aborted the transaction of producer id {producer.producer_id}, epoch {producer.producer_epoch},"
            f" in {where} from offset {start_offset} on."
        )
        result = {
            "topic": topic,
            "partition": partition,
            "start_offset": start_offset,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
        }
        report(sentence, result, as_json=as_json)

    run(work())


COMMANDS: Final = (hanging, abort)
