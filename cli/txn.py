"""`oncelog txn`: list and describe transactions, and fence producers. `hanging` finds and ends those that hang."""

from __future__ import annotations

import time

import click

from .bootstrap import PATIENCE_MS, bootstrap_option, connect_admin, run
from .confirmation import confirm, yes_option
from .hanging import COMMANDS
from .json_output import json_option, print_json
from .tables import print_items
from .transaction_words import STATES


@click.group(short_help="Look at transactions, fence producers, end what hangs.")
def txn() -> None:
    """Look at transactions, lock producers out, find and end transactions that hang.

    A transactional id names one producer across its restarts. Its coordinator, a broker, knows whether a transaction is
    open and on which partitions, and ends it: when the producer says so, when it times out, or when the id is fenced.
    Consumers with isolation level read_committed get nothing behind the first record of an open transaction.

    \b
    oncelog txn list --state Ongoing              what is open now
    oncelog txn describe payments-1               since when, until when, and which consumers it holds up
    oncelog txn fence payments-1                  abort it, and lock out the producer that has it
    oncelog txn hanging                           what is open in a partition, and unknown to every coordinator
    oncelog txn abort orders 0 --start-offset 42  end such a transaction
    """


for command in COMMANDS:
    txn.add_command(command)


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
@json_option
@bootstrap_option
def list_(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than: float | None,
    matching: str | None,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Print transactional ids, one per line: id, state, producer id, separated by tabs.

    An id is printed if every given filter matches it.

    \b
    oncelog txn list
    oncelog txn list --state Ongoing --longer-than 30
    oncelog txn list --matching 'payments-.*'
    """

    async def work() -> None:
        async with connect_admin(bootstrap) as admin:
            listed = await admin.list_transactions(
                states=states,
                producer_ids=producer_ids,
                min_duration_ms=-1 if longer_than is None else round(longer_than * 1000),
                pattern=matching,
            )
        filtered = bool(states or producer_ids or matching) or longer_than is not None
        empty = "No transactional id matches all filters." if filtered else "There are no transactional ids."
        items = [each._asdict() for each in listed]
        print_items(("transactional_id", "state", ">producer_id"), items, empty, as_json=as_json)

    run(work())


@txn.command(short_help="Show one transactional id and what it has open.")
@click.argument("transactional_id")
@json_option
@bootstrap_option
def describe(transactional_id: str, as_json: bool, bootstrap: str) -> None:
    """Show TRANSACTIONAL_ID: its state and what that means, its producer, and the transaction that is open.

    Per partition of an open transaction: `first` is the offset of its first record there (- when it has none yet),
    `stable` how far read_committed consumers read, `end` the next offset to be written, `waiting` how many offsets
    between the two are held back, by this transaction or by another one.
    """

    async def work() -> None:
        from ..protocol.errors import ErrorCode, KafkaError
        from .transaction_tables import partition_items, print_partitions, sentences

        async with connect_admin(bootstrap) as admin:
            try:
                described = (await admin.describe_transactions([transactional_id]))[transactional_id]
            except KafkaError as error:
                if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
                raise click.ClickException(
                    f"there is no transactional id {transactional_id}. `oncelog txn list` prints all of them."
                ) from None
            items = await partition_items(admin, described)
        if as_json:
            print_json({**described._asdict(), "deadline_ms": described.deadline_ms, "partitions": items})
            return
        now_ms = int(time.time() * 1000)
        for line in sentences(described, now_ms):
            click.echo(line)
        if items:
            print_partitions(items, now_ms)

    run(work())


@txn.command(short_help="Abort what is open, and lock out the producers that have it.")
@click.argument("transactional_ids", nargs=-1, required=True)
@click.option(
    "--timeout", type=click.FloatRange(0.001), default=PATIENCE_MS / 1000, show_default=True, metavar="SECONDS",
    help="How long to wait until open transactions are aborted.",
)  # fmt: skip
@yes_option
@json_option
@bootstrap_option
def fence(transactional_ids: tuple[str, ...], timeout: float, yes: bool, as_json: bool, bootstrap: str) -> int:
    """Lock out the producers that use TRANSACTIONAL_IDS now, and abort their open transactions.

    Such a producer gets PRODUCER_FENCED at its next request, and can neither write nor commit. A producer that is
    started later with the same id works as usual. Fencing an id that was never used creates it.

    \b
    oncelog txn fence payments-1
    oncelog txn list --matching 'payments-.*' | cut -f1 | xargs oncelog txn fence
    """
    confirm(f"Abort what {', '.join(transactional_ids)} has open, and lock out its producer?", yes=yes)

    async def work() -> int:
        async with connect_admin(bootstrap) as admin:
            outcomes = await admin.fence_producers(transactional_ids, timeout_ms=round(timeout * 1000))
        for transactional_id, outcome in outcomes.items():
            if outcome.error is not None:
                click.echo(f"oncelog: {outcome.error}", err=True)
            elif not as_json:
                click.echo(
                    f"Fenced {transactional_id}: producer id {outcome.producer_id}, epoch {outcome.producer_epoch}."
                )
        if as_json:
            print_json(
                [
                    {
                        "transactional_id": transactional_id,
                        "producer_id": outcome.producer_id,
                        "producer_epoch": outcome.producer_epoch,
                        "error": outcome.error and str(outcome.error),
                    }
                    for transactional_id, outcome in outcomes.items()
                ]
            )
        return 1 if any(outcome.error is not None for outcome in outcomes.values()) else 0

    return run(work())
