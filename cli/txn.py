"""`oncelog txn`: look at transactions, lock producers out, find and end what hangs."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from .bootstrap import PATIENCE_MS, bootstrap_option, run
from .tables import print_list
from .transaction_words import STATES

if TYPE_CHECKING:
    from ..client.admin import Admin

LONGEST_S = 900
"""Kafka's default of transaction.max.timeout.ms: no transaction is open for longer of its own will."""


@click.group(short_help="Look at transactions, fence producers, end what hangs.")
def txn() -> None:
    """Look at transactions, lock producers out, find and end transactions that hang.

    A transactional id names one producer across its restarts. Its coordinator, a broker, knows whether a transaction is
    open, on which partitions, and ends it: when the producer says so, when its timeout strikes, or when the id is
    fenced. Readers with isolation level read_committed get nothing behind the first record of an open transaction.

    \b
    oncelog txn list --state Ongoing              what is open now
    oncelog txn describe payments-1               since when, how long it may take, who waits because of it
    oncelog txn fence payments-1                  abort it, and lock out the producer that has it
    oncelog txn hanging                           what is open in a partition, and no coordinator knows of
    oncelog txn abort orders 0 --start-offset 42  end such a one
    """


@txn.command("list", short_help="Print transactional ids, one per line.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(list(STATES), case_sensitive=False),
    help="Only ids in this state; may be repeated.",
)
@click.option("--producer-id", "producer_ids", multiple=True, type=int, help="Only this producer id; may be repeated.")
@click.option(
    "--longer-than",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Only ids whose transaction began longer ago (Kafka 3.8 and newer).",
)
@click.option("--matching", metavar="REGEX", help="Only ids that match as a whole, RE2 syntax (Kafka 4.1 and newer).")
@bootstrap_option
def list_(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than: float | None,
    matching: str | None,
    bootstrap: str,
) -> None:
    """Print transactional ids, one per line: id, state, producer id, separated by tabs.

    Every filter that is given has to hold.

    \b
    oncelog txn list
    oncelog txn list --state Ongoing --longer-than 30
    oncelog txn list --matching 'payments-.*'
    """

    async def work() -> None:
        async with _admin(bootstrap) as admin:
            listed = await admin.list_transactions(
                states=states,
                producer_ids=producer_ids,
                min_duration_ms=-1 if longer_than is None else round(longer_than * 1000),
                pattern=matching,
            )
            filtered = bool(states or producer_ids or matching) or longer_than is not None
            rows = [[one.transactional_id, one.state, str(one.producer_id)] for one in listed]
            print_list(
                ["transactional id", "state", "producer id"],
                rows,
                None if filtered else "There are no transactional ids.",
            )

    run(work())


@txn.command(short_help="Show one transactional id and what it has open.")
@click.argument("transactional_id")
@bootstrap_option
def describe(transactional_id: str, bootstrap: str) -> int:
    """Show TRANSACTIONAL_ID: its state and what that means, its producer, and the transaction that is open.

    Per partition of an open transaction: `first` is the offset of its first record there (- when it has none yet),
    `stable` how far read_committed readers get, `end` the next offset to be written, `waiting` how many offsets
    between the two are held back, by this transaction or by another one.
    """

    async def work() -> int:
        from ..protocol.errors import ErrorCode, KafkaError
        from .transaction_tables import print_partitions, sentences

        async with _admin(bootstrap) as admin:
            try:
                one = (await admin.describe_transactions([transactional_id]))[transactional_id]
            except KafkaError as error:
                if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
                click.echo(
                    f"oncelog txn describe: there is no transactional id {transactional_id}."
                    " `oncelog txn list` shows all.",
                    err=True,
                )
                return 1
            now_ms = int(time.time() * 1000)
            for line in sentences(one, now_ms):
                click.echo(line)
            if one.partitions:
                await print_partitions(admin, one, now_ms)
            return 0

    return run(work())


@txn.command(short_help="Abort what is open, and lock out the producers that have it.")
@click.argument("transactional_ids", nargs=-1, required=True)
@click.option(
    "--timeout", type=click.FloatRange(0.001), default=PATIENCE_MS / 1000, show_default=True, metavar="SECONDS",
    help="How long to wait for what is open to be aborted.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask; nobody is asked either when stdin is not a terminal.")
@bootstrap_option
def fence(transactional_ids: tuple[str, ...], timeout: float, yes: bool, bootstrap: str) -> int:
    """Lock out the producers that use TRANSACTIONAL_IDS now, and abort what they have open.

    Such a producer gets PRODUCER_FENCED at its next request, and can neither write nor commit. One that is started
    anew with the same id works as ever. Ids are taken as they are given: fencing one that was never used creates it.

    \b
    oncelog txn fence payments-1
    oncelog txn list --matching 'payments-.*' | cut -f1 | xargs oncelog txn fence
    """
    if not yes and sys.stdin.isatty():
        click.confirm(f"Abort what {', '.join(transactional_ids)} has open, and lock out who uses it?", abort=True)

    async def work() -> int:
        failed = 0
        async with _admin(bootstrap) as admin:
            outcomes = await admin.fence_producers(transactional_ids, timeout_ms=round(timeout * 1000))
            for transactional_id, one in outcomes.items():
                if one.error is None:
                    click.echo(f"Fenced {transactional_id}: producer id {one.producer_id}, epoch {one.producer_epoch}.")
                else:
                    click.echo(f"oncelog txn fence: {one.error}", err=True)
                    failed += 1
        return 1 if failed else 0

    return run(work())


@txn.command(short_help="Find transactions that nobody will ever end.")
@click.option("--topic", help="Look at this topic only.  [default: all, internal ones too]")
@click.option("--partition", type=click.IntRange(0), help="Look at this partition of --topic only.")
@click.option(
    "--older-than", type=click.FloatRange(0), default=LONGEST_S, show_default=True, metavar="SECONDS",
    help="Leave out transactions with a younger record; should be the brokers' transaction.max.timeout.ms.",
)  # fmt: skip
@bootstrap_option
def hanging(topic: str | None, partition: int | None, older_than: float, bootstrap: str) -> int:
    """Find transactions that are open in a partition, and that no coordinator knows of.

    Nothing will ever end such a one by itself, and read_committed readers wait in front of it for ever. They come from
    batches that reached a partition after their transaction had ended, on brokers or with settings that let them in.
    Ends with exit code 1 when there are some.
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")

    async def work() -> int:
        from .transaction_tables import print_hanging

        async with _admin(bootstrap) as admin:
            where = None
            if topic is not None:
                metadata = (await admin.describe_topics([topic]))[topic]
                where = [(topic, one.index) for one in metadata.partitions if partition in (None, one.index)]
                if not where:
                    raise click.ClickException(f"topic {topic} has no partition {partition}")
            found = await admin.find_hanging_transactions(where, older_than_ms=round(older_than * 1000))
            if not found:
                click.echo("No transaction hangs.")
                return 0
            print_hanging(found, int(time.time() * 1000))
            click.echo("End one, when no producer works with it any more, with:")
            for one in found:
                click.echo(
                    f"  oncelog txn abort {one.partition.topic} {one.partition.partition}"
                    f" --start-offset {one.producer.transaction_start_offset}"
                )
            return 1

    return run(work())


@txn.command(short_help="End a transaction that hangs, by hand.")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@click.option(
    "--start-offset", type=click.IntRange(0), required=True, metavar="OFFSET",
    help="The first offset of the transaction, as `oncelog txn hanging` shows it.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Also when a coordinator has it open: its other partitions stay open.")
@click.option("--yes", is_flag=True, help="Do not ask; nobody is asked either when stdin is not a terminal.")
@bootstrap_option
def abort(topic: str, partition: int, start_offset: int, force: bool, yes: bool, bootstrap: str) -> int:
    """End the hanging transaction that begins at OFFSET of PARTITION of TOPIC: write an abort marker there.

    The marker goes into that partition only, and no coordinator is asked. A transaction that a coordinator has open is
    refused: `oncelog txn fence` ends it in all of its partitions.

    \b
    oncelog txn hanging
    oncelog txn abort orders 0 --start-offset 42
    """

    async def work() -> int:
        from ..client.admin import AbortTransactionSpec
        from ..client.values import TopicPartition
        from .transaction_tables import its_owner, no_such

        where = TopicPartition(topic, partition)
        async with _admin(bootstrap) as admin:
            known = (await admin.describe_producers([where]))[where]
            wanted = [one for one in known if one.transaction_start_offset == start_offset]
            if not wanted:
                raise click.ClickException(no_such(where, start_offset, known))
            (producer,) = wanted
            if not force:
                found = await admin.find_hanging_transactions([where], older_than_ms=0)
                if not any(one.producer.producer_id == producer.producer_id for one in found):
                    raise click.ClickException(await its_owner(admin, where, producer))
            if not yes and sys.stdin.isatty():
                click.confirm(f"Abort what producer id {producer.producer_id} has open in {where}?", abort=True)
            await admin.abort_transaction(AbortTransactionSpec.of(where, producer))
            click.echo(
                f"Aborted the transaction of producer id {producer.producer_id}, epoch {producer.producer_epoch},"
                f" in {where} from offset {start_offset} on."
            )
            return 0

    return run(work())


def _admin(bootstrap: str) -> Admin:
    from ..client.admin import Admin

    return Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=PATIENCE_MS)
