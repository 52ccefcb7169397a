"""Why `oncelog txn abort` refuses to abort a transaction that does not hang, as the cluster is by then."""

from __future__ import annotations

from typing import Any

import pytest
from oncelog.cli.transaction_tables import why_not_by_hand
from oncelog.client.admin import ProducerDescription, TransactionListing
from oncelog.client.values import TopicPartition

WHERE = TopicPartition("t", 0)
ENDED = "the transaction has ended by now: none begins at offset 5 in t-0"


def producer(start_offset: int | None) -> ProducerDescription:
    return ProducerDescription(7, 1, 0, 0, 0, start_offset)


class Cluster:
    """The methods of `Admin` that are called."""

    def __init__(self, states: list[str], producers: list[ProducerDescription]) -> None:
        self.states = states
        self.producers = producers

    async def list_transactions(self, *, producer_ids: list[int]) -> list[TransactionListing]:
        return [TransactionListing("id", producer_ids[0], state, 0) for state in self.states]

    async def describe_producers(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Any]:
        return dict.fromkeys(partitions, self.producers)


@pytest.mark.parametrize(
    ("states", "producers", "why"),
    [
        (["Ongoing"], [producer(5)], "the transaction does not hang: transactional id id is in state Ongoing, and its"),
        (
            ["PrepareAbort"],
            [producer(5)],
            "the transaction does not hang: transactional id id is in state PrepareAbort",
        ),
        (["CompleteCommit"], [producer(None)], ENDED),
        (["CompleteAbort"], [], ENDED),
        (["Ongoing"], [producer(9)], ENDED),
        ([], [producer(None)], ENDED),
    ],
    ids=["open", "being ended", "committed", "aborted", "the next one is open", "id deleted"],
)
async def test_a_transaction_that_has_ended_is_said_to_have_ended(
    states: list[str], producers: list[ProducerDescription], why: str
) -> None:
    admin: Any = Cluster(states, producers)
    assert (await why_not_by_hand(admin, WHERE, producer(5))).startswith(why)
