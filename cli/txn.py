"""Define `oncelog txn`: list and describe transactions, and fence producers.

The commands for hanging transactions are in `hanging.py`.
"""

from __future__ import annotations

import time

import click

from .bootstrap import PATIENCE_MS, bootstrap_option, connect_admin, run
from .confirmation import confirm, yes_option
from .hanging import COMMANDS
from .json_output import json_option, print_json
from .parameters import MAX_INT64, Number, Seconds
from .tables import print_items
from .transaction_states import STATES, WITHOUT_TRANSACTION


@click.group(short_help="List transactions, fence producers, abort hanging transactions.")
def txn() -> None:
    """List and describe transactions, fence producers, and find and abort hanging transactions.

    A transactional id identifies one producer across its restarts. The id's coordinator, a broker, knows whether a
    transaction is open and which partitions it has. The coordinator ends the transaction when the producer requests it,
    when the transaction times out, or when the id is fenced. Consumers with the isolation level read_committed stop
    before the first record of an open transaction, and receive no later record of that partition until it has ended.

    \b
    oncelog txn list --state Ongoing              open transactions
    oncelog txn describe payments-1               its times, its partitions, and how many offsets it holds back
    oncelog txn fence payments-1                  abort its open transaction, and fence its producer
    oncelog txn hanging                           transactions that no coordinator knows
    oncelog txn abort orders 0 --start-offset 42  abort a hanging transaction
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
@click.option(
    "--producer-id",
    "producer_ids",
    multiple=True,
    type=Number(0, MAX_INT64),
    help="Only ids with this producer id; may be repeated.",
)
@click.option(
    "--longer-than",
    type=Seconds(),
    metavar="SECONDS",
    help="Only ids whose transaction has been open for longer than this (Kafka 3.8 and newer).",
)
@click.option(
    "--matching", metavar="REGEX", help="Only ids that match this RE2 expression in full (Kafka 4.1 and newer)."
)
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

    The command prints the ids that match all given filters.

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
        if longer_than is not None:  # brokers also list ids without a transaction, as in Kafka
            listed = [each for each in listed if each.state not in WITHOUT_TRANSACTION]
        filtered = bool(states or producer_ids or matching) or longer_than is not None
        empty = "No transactional id matches all filters." if filtered else "There are no transactional ids."
        items = [each._asdict() for each in listed]
        print_items(("transactional_id", "state", ">producer_id"), items, empty, as_json=as_json)

    run(work())


@txn.command(short_help="Show a transactional id and its open transaction.")
@click.argument("transactional_id")
@json_option
@bootstrap_option
def describe(transactional_id: str, as_json: bool, bootstrap: str) -> None:
    """Show TRANSACTIONAL_ID: its state and the state's meaning, its producer, and its open transaction.

    For each partition of the open transaction, `first` is the offset of the transaction's first record there. It is
    `-` if there is no such record yet. `stable` is the last stable offset, up to which read_committed consumers read.
    `end` is the offset of the next record. `waiting` is the number of offsets from `stable` to `end`, which this or
    another transaction holds back.
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
                    f"there is no transactional id {transactional_id}. `oncelog txn list` prints all transactional ids."
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


@txn.command(short_help="Abort open transactions, and fence their producers.")
@click.argument("transactional_ids", nargs=-1, required=True)
@click.option(
    "--timeout", type=Seconds(0.001), default=PATIENCE_MS / 1000, show_default=True, metavar="SECONDS",
    help="Longest time to wait until the open transactions are aborted.",
)  # fmt: skip
@yes_option
@json_option
@bootstrap_option
def fence(transactional_ids: tuple[str, ...], timeout: float, yes: bool, as_json: bool, bootstrap: str) -> int:
    """Fence the current producers of TRANSACTIONAL_IDS, and abort their open transactions.

    The next request of a fenced producer fails with PRODUCER_FENCED, or with INVALID_PRODUCER_EPOCH if it is a Produce
    request. The producer can neither write nor commit. A producer that is started later with the same id works as
    usual. Fencing an id that was never used creates it.

    \b
    oncelog txn fence payments-1
    oncelog txn list --matching 'payments-.*' | cut -f1 | xargs oncelog txn fence
    """
    confirm(f"Abort open transactions of {', '.join(transactional_ids)}, and fence the producers?", yes=yes)

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
